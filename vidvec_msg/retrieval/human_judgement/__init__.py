"""What people say of items: the page on which they say it, and how far they agree."""
