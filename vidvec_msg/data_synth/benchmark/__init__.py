"""Messages → stories → queries → candidate clips → a ranking for people to rate: a benchmark of one's own."""
