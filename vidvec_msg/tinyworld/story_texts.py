"""The stories' words, as one readable sheet; `stories` parses it and explains the sets.

Format: ``== key | topic``, then blocks ``shows`` (captions with slots), ``gist``, ``means`` (trained
paraphrases), ``held_out`` and ``never_seen``. No content word may stand both under shows or gist and under
the rest.
"""

STORY_TEXTS = """
== wall_breaks | persistence
shows:
  The {a} hits the wall again and again until the bricks crumble.
  A {a} bumps and bumps into a brick wall and the wall breaks.
  The {a} runs at the wall over and over until it cracks apart.
  A wall of bricks crumbles after the {a} hits it and hits it.
gist:
  hits the wall until it breaks
  the brick wall crumbles after several bumps
  several hits and the wall is in pieces
means:
  Patience outlasts every obstacle.
  Be patient: obstacles tire sooner than you do.
  Persistence is how obstacles learn modesty.
  Stubborn patience beats clever impatience.
  Those who persist exhaust their obstacles.
held_out:
  A patient soul outlasts any obstacle.
  Persistence tires out even stubborn obstacles.
never_seen:
  No obstacle survives patient persistence.
  Obstacles tire, but stubborn patience never does.

== wall_stays | persistence
shows:
  The {a} hits the wall once, turns around and rolls away.
  A {a} bumps into a brick wall and goes off the other way.
  The {a} runs at the wall once and heads off while the bricks stay up.
  A wall of bricks stays up and the {a} turns around after one bump.
gist:
  one bump and it turns around
  the brick wall stays up
  hits the wall once and rolls off
means:
  Quitting early is regret paid in instalments.
  Discouraged people quit one attempt too soon.
  The quitter never learns how near victory was.
  Discouragement whispers quit, and regret repeats it daily.
  To quit too soon is to collect regret.
held_out:
  Regret visits everyone who quits too soon.
  A discouraged mind makes quitting sound sensible.
never_seen:
  Quit too soon and regret will visit daily.
  Early quitters become experts in regret.

== hill_top | persistence
shows:
  The {a} slides off the hill, rolls up again and reaches the flag.
  A {a} rolls up a hill, slips to the bottom and then gets to the top.
  Up the hill, down again, and up again: the {a} is on top.
  A {a} slips on the hill but on its second run it touches the flag.
gist:
  slips on the hill and then gets to the top
  reaches the flag on the hill
  up, down and up the hill again
means:
  Failure is only a rehearsal for success.
  Every failure is a lesson that success requires.
  Success is failure that went on learning.
  Learn from failure and it becomes your teacher.
  Failures are the tuition that success demands.
held_out:
  Success begins as a well rehearsed failure.
  Failure teaches what success merely celebrates.
never_seen:
  Without failure, success has no teacher.
  Treat each failure as a lesson toward success.

== hill_bottom | persistence
shows:
  The {a} rolls half the way up the hill, slides down and falls asleep.
  A {a} slips off the hill and sleeps at the bottom.
  Half up the hill the {a} slides to the bottom and shuts its eyes.
  A {a} comes sliding down the hill and naps beside it.
gist:
  slides down the hill and sleeps
  asleep at the bottom of the hill
  half up the hill, then a nap
means:
  Ambition without effort is merely a pleasant daydream.
  Lazy ambition dreams loudly and achieves nothing.
  Daydreams are ambition minus the effort.
  An ambition that avoids effort remains a daydream.
  Laziness makes daydreams out of ambition.
held_out:
  Effortless ambition is daydreaming with better vocabulary.
  Daydreams flatter ambition but lazily skip effort.
never_seen:
  Ambition with no effort is laziness daydreaming.
  A lazy ambition is just one more daydream.

== slow_passes | pace
shows:
  The slow {a} passes the fast {b}, which sleeps on the track.
  A fast {b} naps on the track and the slow {a} rolls past it to the flag.
  The {b} shoots ahead and falls asleep, and the slow {a} gets to the flag.
  A slow {a} rolls on and on, past the sleeping {b}.
gist:
  the slow one passes the sleeping one
  the fast one naps on the track
  slow one gets to the flag
means:
  Steady habits beat occasional brilliance.
  Consistency quietly defeats careless genius.
  A steady habit is worth more than brilliance.
  Consistent habits embarrass brilliant procrastinators.
  Steadiness wins what brilliance postpones.
held_out:
  Brilliant bursts lose to steady, consistent habits.
  Steady consistency is brilliance wearing plain clothes.
never_seen:
  Consistent and steady outdoes brilliant and occasional.
  Habits, if steady, outperform brilliance.

== fast_wins | pace
shows:
  The fast {a} shoots past the slow {b} to the flag.
  A {a} speeds along the track to the flag and the {b} is far behind.
  The slow {b} crawls far behind while the fast {a} gets to the flag.
  A fast {a} jumps at the flag; the {b} crawls along the track.
gist:
  the fast one speeds to the flag
  the slow one crawls far behind
  shoots past to the flag
means:
  Natural talent sometimes simply deserves the prize.
  Talent and readiness earn the prize.
  Gifted people deserve applause when they deliver.
  Real talent needs no apology for its prize.
  Applaud talent, for the prize is deserved.
held_out:
  Genuine talent deserves its prize and applause.
  Applause belongs to the gifted who deliver.
never_seen:
  The gifted earn their applause and their prize.
  A deserved prize is how talent hears applause.

== rock_crash | pace
shows:
  The {a} races along, crashes into a rock and tumbles over.
  A {a} speeds straight into the rock and lies there dizzy.
  The {a} crashes: it races at a rock and bounces off, seeing stars.
  Into the rock races the {a}, and it tumbles backwards.
gist:
  crashes into the rock
  races at a rock and tumbles
  bounces off the rock, dizzy
means:
  Haste is the costliest way to save minutes.
  Hurry now, pay the repair bill later.
  Hasty people arrive late and pay the bill.
  Whoever hurries blindly pays a costly bill.
  Haste saves minutes and costs months.
held_out:
  Hurrying becomes costly when haste pays the bill.
  Haste always sends a costly bill.
never_seen:
  A hurried minute costs months of repair.
  The bill for hasty hurrying is costly.

== rock_jump | pace
shows:
  The {a} rolls up to the rock, pauses and jumps over it.
  A {a} stops before a rock, leaps over and rolls on.
  The {a} pauses at a rock, then a high leap takes it across.
  Over the rock leaps the {a} after a pause.
gist:
  pauses and leaps over the rock
  jumps over a rock and rolls on
  a high leap over the rock
means:
  Caution is wisdom in comfortable shoes.
  A dose of foresight prevents endless trouble.
  Prudent people meet trouble with foresight.
  Wise caution makes trouble uneventful.
  Foresight is the wisest form of caution.
held_out:
  Cautious foresight spares us needless trouble.
  Trouble seldom surprises the wise and prudent.
never_seen:
  Wisdom is mostly caution plus foresight.
  Prudent foresight is wiser than cleverness in trouble.

== umbrella_over | care
shows:
  In the rain the big {a} puts an umbrella over the small {b}.
  The big {a} rolls to the wet {b} and covers it with an umbrella.
  Rain falls, and the {a} brings an umbrella to the small {b}.
  A small {b} gets wet until the big {a} comes with an umbrella.
gist:
  an umbrella comes over the small one
  covers the small one in the rain
  brings an umbrella to the wet one
means:
  True power exists to protect the vulnerable.
  Strength is measured by whom it protects.
  The strong owe protection to the vulnerable.
  Power proves itself by protecting somebody weaker.
  Protecting the vulnerable is what strength is for.
held_out:
  Strength becomes noble while protecting vulnerable people.
  Protect the weaker; that is real power.
never_seen:
  Power is noble only if it protects.
  The strong prove themselves protecting the vulnerable.

== umbrella_away | care
shows:
  In the rain the big {a} takes the umbrella away from the small {b}.
  The big {a} walks off with the umbrella and the {b} gets wet.
  Rain falls on the small {b} as the {a} rolls off under its umbrella.
  A small {b} is dry until the big {a} leaves with the umbrella.
gist:
  the umbrella leaves and the small one gets wet
  walks off with the umbrella
  takes the umbrella away in the rain
means:
  Hardship reveals who will abandon us.
  Abandoning someone in hardship is polite betrayal.
  Fair-weather allies betray us in hardship.
  Betrayal often sounds like a polite excuse.
  Those who desert us were never allies.
held_out:
  Hardship unmasks allies who desert and betray.
  An absent ally is betrayal in disguise.
never_seen:
  Allies who abandon us betray us twice.
  In hardship, deserting an ally is betrayal.

== pit_pull | care
shows:
  The {a} drops a rope and pulls the {b} out of the pit.
  A {b} sits in a pit and the {a} pulls it up with a rope.
  With a rope the {a} lifts the {b} from the hole.
  Out of the pit comes the {b}, on a rope from the {a}.
gist:
  pulls it out of the pit with a rope
  a rope lifts it from the hole
  out of the pit on a rope
means:
  True friends rescue now and lecture later.
  Friendship means rescue minus the lecture.
  A friend rescues us before asking questions.
  Rescue is the finest grammar of friendship.
  Good friends rescue us unasked, as usual.
held_out:
  Real friendship rescues now and lectures never.
  Whoever rescues you unasked is a friend.
never_seen:
  Friends skip the lecture and begin the rescue.
  Friendship is measured in rescues, not lectures.

== pit_pass | care
shows:
  The {a} leaps across the pit and walks off; the {b} stays in it.
  A {b} sits in a pit while the {a} walks past and leaves.
  Past the hole with the {b} inside goes the {a}, and off the screen.
  The {b} stays in the pit as the {a} leaps across and leaves.
gist:
  walks past the one in the pit
  leaps across the hole and leaves
  one stays down in the pit
means:
  Indifference wounds deeper than honest cruelty.
  To ignore suffering is a well mannered cruelty.
  Indifferent strangers wound us and never notice.
  Suffering hurts most whenever it is ignored.
  Indifference is cruelty that cannot be bothered.
held_out:
  Ignored suffering wounds worse than cruelty.
  Cruelty begins wherever indifference feels normal.
never_seen:
  The indifferent ignore suffering and feel normal.
  Few cruelties wound like indifference to suffering.

== berries_given | sharing
shows:
  The {a} throws berries to both {b}s.
  Each {b} gets a berry from the pile of the {a}.
  A {a} hands out its berries, one to each {b}.
  From the pile of the {a} the berries fly to both {b}s.
gist:
  hands out the berries
  berries fly to both sides
  each one gets a berry
means:
  Generosity makes the whole neighbourhood wealthy.
  Generous people become wealthy in gratitude.
  Abundance doubles in generous company.
  Generosity is the arithmetic of abundance.
  A generous life feels abundant and wealthy.
held_out:
  Wealth multiplies wherever people are generous.
  Gratitude is the wealth that generosity earns.
never_seen:
  Be generous and abundance will visit you.
  The generous count gratitude among their wealth.

== berries_taken | sharing
shows:
  The {a} snatches all the berries from both {b}s.
  Both {b}s have a berry until the {a} piles them up.
  A {a} piles up every berry and no {b} has one.
  From both {b}s the berries fly to the pile of the {a}.
gist:
  piles up every berry
  snatches the berries from both sides
  all berries fly to one pile
means:
  Greed dines alone and remains hungry.
  Greedy appetites never learn the word enough.
  The greedy own plenty and enjoy nothing.
  Greed is a hunger that eats its owner.
  Enough is a word that greed cannot spell.
held_out:
  Greedy owners remain hungry amid plenty.
  Greed never knows that enough is enough.
never_seen:
  Hungry greed owns plenty and enjoys nothing.
  Greed dines often but never enough.

== gems_swapped | sharing
shows:
  The {a} and the {b} swap a gem for a leaf.
  A gem flies from the {a} to the {b} and a leaf flies the other way.
  The {a} gets a leaf for its gem from the {b}.
  Two swap: the {b} has the gem and the {a} has the leaf.
gist:
  swaps a gem for a leaf
  gem and leaf cross in the air
  a gem one way, a leaf the other
means:
  A fair bargain delights both parties.
  Fairness is the secret of a good bargain.
  Cooperation works whenever the bargain is fair.
  Both parties profit from a fair exchange.
  Honest bargains make cooperative neighbours.
held_out:
  Fair exchange is cooperation with a smile.
  Both parties smile at an honest bargain.
never_seen:
  Bargain fairly and both parties will smile.
  A good bargain is fair to both parties.

== gem_grabbed | sharing
shows:
  The {a} grabs the gem of the {b} and runs off.
  A {a} runs up, takes the gem from the {b} and flees.
  The {b} has a gem until the {a} grabs it and flees.
  Off runs the {a} with the gem of the {b}.
gist:
  grabs the gem and runs off
  takes the gem and flees
  the gem is grabbed
means:
  Theft bankrupts trust before anything else.
  A thief forfeits trust, the costlier fortune.
  Stolen goods rob the thief of trust.
  Trust, once stolen, is never refunded.
  Thieves pay with their reputation.
held_out:
  No thief can ever steal a good reputation.
  Theft bankrupts the thief's own reputation.
never_seen:
  The thief's reputation is what theft bankrupts.
  Stealing robs a thief of trust and reputation.

== group_joined | belonging
shows:
  The {a} comes to the group of {b}s and they all bounce.
  A {a} rolls up to three {b}s and they move over for it.
  Three {b}s bounce around as the {a} rolls into the group.
  Into the group of {b}s rolls the {a}.
gist:
  rolls into the group and they bounce
  comes to the group
  the group moves over
means:
  Belonging is the oldest cure for loneliness.
  Loneliness ends where somebody says welcome.
  A warm welcome cures the loneliest soul.
  Everyone longs to belong and be welcomed.
  To feel welcome is to feel at home.
held_out:
  Welcome the lonely and they belong.
  Loneliness dissolves in belonging and welcome.
never_seen:
  A welcome is how belonging cures loneliness.
  Lonely souls are cured by a warm welcome.

== group_left | belonging
shows:
  The {a} rolls out of the group of {b}s and off to the edge.
  A {a} leaves three {b}s and goes far to the side.
  Three {b}s stay and the {a} rolls out of the group.
  Out of the group of {b}s rolls the {a}.
gist:
  rolls out of the group
  leaves the group for the edge
  the group stays, one goes far off
means:
  Independence sometimes begins with a goodbye.
  Choosing solitude can be an act of freedom.
  Freedom is worth an occasional goodbye.
  An independent mind is friendly with solitude.
  Some goodbyes are the price of freedom.
held_out:
  Solitude teaches independence and freedom.
  Say goodbye whenever freedom asks for it.
never_seen:
  The independent choose freedom and some solitude.
  Goodbye is how independence begins its freedom.

== colour_lost | belonging
shows:
  In the crowd the {a} takes on the colour of the {b}s.
  A {a} fades into the colour of the {b}s all around.
  The colour of the {b}s seeps over to the {a}.
  In the middle of {b}s the {a} turns their colour.
gist:
  takes on the colour of the crowd
  one turns the colour of the crowd
  fades into the colour around it
means:
  Imitation politely erases your identity.
  Conformity is comfortable and erases identity.
  Imitate everybody and you become nobody.
  Conformists trade identity for approval.
  Approval is a poor price for identity.
held_out:
  Conformity asks your identity to vanish politely.
  Imitating everybody for approval makes you nobody.
never_seen:
  Your identity is the price of conformity.
  Those who imitate for approval erase their identity.

== colour_spreads | belonging
shows:
  In the crowd every {b} takes on the colour of the {a}.
  The {b}s turn the colour of the {a}, one by one.
  The colour of the {a} seeps over to all the {b}s.
  Around the {a} all the crowd of {b}s turns its colour.
gist:
  the crowd takes on its colour
  all turn the colour of one
  its colour seeps over the crowd
means:
  One sincere example can inspire thousands.
  Leaders inspire by example, seldom by speeches.
  Inspiration multiplies from one sincere example.
  Lead by example and inspiration becomes contagious.
  A good example is contagious leadership.
held_out:
  Leadership is an example that inspires.
  Examples inspire whenever speeches bore.
never_seen:
  Inspire by example; leadership needs no speeches.
  A sincere example makes a leader contagious.

== lamp_on | hope
shows:
  It is dark; the {a} rolls to the lamp and the lamp glows.
  In the night the {a} switches on a lamp.
  The night gets bright as the {a} touches the lamp.
  A dark scene gets bright: the {a} has switched on the lamp.
gist:
  switches on the lamp in the dark
  the lamp glows and it gets bright
  from dark to bright
means:
  Hope arrives precisely as despair insists.
  Even brief hope can silence despair.
  Despair cannot argue with hope for long.
  Hopeful souls refuse to debate despair.
  Where hope insists, despair must apologise.
held_out:
  Despair loses every argument against hope.
  Hope is how the soul silences despair.
never_seen:
  A hopeful soul silences its despair.
  Insist on hope until despair must apologise.

== lamp_off | hope
shows:
  It is bright; the lamp goes out and the {a} sits in the dark.
  The lamp beside the {a} goes out and night falls.
  The bright scene gets dark around the {a} as the lamp dims.
  A {a} sits by the lamp; it dims and all is dark.
gist:
  the lamp goes out
  from bright to dark
  the lamp dims and night falls
means:
  Comfort is fleeting, so cherish it today.
  Cherish ordinary joys before they vanish.
  Fleeting joys ask only to be cherished.
  What nobody cherishes tends to vanish.
  Every comfort vanishes, usually without a warning.
held_out:
  Joy vanishes without warning, so cherish it.
  Cherished or not, every comfort is fleeting.
never_seen:
  Cherish today, for joy is fleeting.
  Comforts vanish sooner than we cherish them.

== plant_blooms | hope
shows:
  The {a} waters the plant and it grows and blooms.
  A {a} pours water on a sprout and a flower comes up.
  With water from the {a} the sprout grows tall.
  The sprout grows into a flower as the {a} pours water.
gist:
  waters the sprout and it blooms
  a flower grows from the sprout
  pours water and the plant grows tall
means:
  Whatever we nurture will eventually flourish.
  Daily attention is how love flourishes.
  Nurturing attention makes promise flourish.
  Devotion nurtures promise into beauty.
  Promise flourishes under daily devotion.
held_out:
  Nurture promise daily and beauty flourishes.
  Devotion is attention repeated every day.
never_seen:
  Beauty flourishes with nurture and attention.
  Daily devotion makes promise flourish into beauty.

== plant_wilts | hope
shows:
  The {a} sleeps beside the plant and it wilts.
  A flower bends and dries up next to the sleeping {a}.
  No water: the plant by the {a} bends and turns brown.
  The petals of the flower fall while the {a} sleeps.
gist:
  the plant wilts beside the sleeper
  the flower bends and turns brown
  petals fall from the dry plant
means:
  Neglect ruins whatever we claim to treasure.
  Neglected affections perish without complaint.
  Neglect is destruction at a leisurely tempo.
  Affection perishes from simple neglect.
  What we neglect will ruin itself leisurely.
held_out:
  Affection, neglected, is affection ruined.
  Neglect destroys at its own leisurely tempo.
never_seen:
  Neglecting affection is leisurely destruction.
  Whatever you neglect will perish in ruins.

== tower_rises | craft
shows:
  The {a} stacks block on block into a tall tower.
  A {a} piles blocks and the stack gets taller and taller.
  Block by block the {a} puts up a tower.
  The tower of blocks rises beside the {a}.
gist:
  stacks blocks into a tall tower
  block by block the tower rises
  the stack gets taller
means:
  Excellence accumulates through humble discipline.
  Discipline is excellence in humble instalments.
  Mastery accumulates by one humble day after another.
  Humble beginnings accumulate into mastery.
  Mastery is only discipline with birthdays.
held_out:
  Discipline accumulates until it becomes mastery.
  Excellence has humble and disciplined parents.
never_seen:
  Humble discipline eventually becomes mastery.
  Mastery is excellence accumulated by humble people.

== tower_topples | craft
shows:
  The {a} adds one more block and the tower topples.
  A {a} puts a block on the tall stack and it tips over.
  The tower of blocks sways and topples onto the ground by the {a}.
  One block too much from the {a} and the stack tips over.
gist:
  one more block and the tower topples
  the tall stack tips over
  the tower sways and topples
means:
  Arrogance invites its own humiliation.
  Pride schedules its own humiliation.
  Overconfidence is humiliation, politely postponed.
  The arrogant arrange their own undoing.
  Excessive pride arranges its own undoing.
held_out:
  Proud people meet humiliation eventually.
  Overconfidence and arrogance arrange their undoing.
never_seen:
  The arrogant meet humiliation by arrangement.
  Pride is arrogance before its undoing.

== bridge_laid | craft
shows:
  The {a} lays planks over the gap and crosses.
  Plank by plank the {a} lays a bridge and rolls across the gap.
  A {a} crosses the canyon on the planks it has laid.
  Over the gap come planks, and over the planks rolls the {a}.
gist:
  lays planks and crosses the gap
  a bridge of planks over the canyon
  rolls across on the planks
means:
  Preparation converts worry into confidence.
  Plan well and worry becomes unemployed.
  Prepared people are calmly confident.
  Planning is confidence, assembled early.
  Prepare thoroughly; confidence arrives by itself.
held_out:
  Confidence belongs to people who prepare.
  A thorough plan calms every worry.
never_seen:
  Thorough planning makes worry unemployed.
  Preparation is where calm confidence begins.

== gap_fall | craft
shows:
  The {a} runs straight into the gap and plunges down.
  A {a} runs off the cliff and plunges into the canyon.
  There is no plank, and the {a} plunges into the gap.
  Into the canyon plunges the {a} at full speed.
gist:
  plunges into the gap
  runs off the cliff into the canyon
  down into the gap at full speed
means:
  Recklessness mistakes good luck for skill.
  Reckless gamblers rely on luck too often.
  Luck is a poor bodyguard for the reckless.
  Danger introduces itself to the reckless.
  Gambling with danger is never a skill.
held_out:
  The reckless confuse danger with adventure.
  Luck retires early from reckless gamblers.
never_seen:
  Reckless gambling is danger without skill.
  Skill respects danger; recklessness relies on luck.

== litter_swept | manners
shows:
  The {a} sweeps the litter into the bin.
  A {a} pushes a broom and the paper scraps end up in the bin.
  With a broom the {a} clears the ground of scraps.
  The ground is littered until the {a} sweeps it.
gist:
  sweeps the scraps into the bin
  the broom clears the ground
  a broom and no more litter
means:
  Responsibility begins with our own mess.
  Good citizens accept responsibility for the mess.
  Responsible people fix what nobody ordered.
  Citizenship is unglamorous responsibility.
  Somebody responsible always fixes the mess.
held_out:
  Fixing a mess is responsible citizenship.
  Responsibility means the mess is mine.
never_seen:
  Responsible citizens always fix the mess.
  Citizenship begins by fixing one mess.

== litter_dropped | manners
shows:
  The {a} walks along and drops paper scraps on the ground.
  A {a} leaves a trail of litter behind it, past the bin.
  Scrap after scrap of paper lands behind the {a}.
  The ground gets littered as the {a} walks past the bin.
gist:
  drops paper scraps on the ground
  a trail of litter past the bin
  more and more scraps on the ground
means:
  Carelessness becomes somebody else's burden.
  Selfish convenience burdens everyone else.
  Convenience is selfish if strangers pay.
  Our careless moments are somebody's burden.
  Selfishness outsources its consequences.
held_out:
  Careless selfishness burdens the neighbours.
  Consequences of convenience burden somebody else.
never_seen:
  Selfish people outsource burdens and consequences.
  The careless enjoy convenience and outsource burdens.

== door_opened | manners
shows:
  The {a} opens the door and the {b} goes through.
  A {a} pulls the door open for the {b} to walk in.
  The door swings open by the {a} and the {b} walks through.
  Through the door that the {a} opens walks the {b}.
gist:
  opens the door and one walks through
  the door swings open
  walks in through the open door
means:
  Courtesy costs nothing and pays forever.
  Good manners are respect made visible.
  Courtesy is respect in everyday clothes.
  Polite manners make strangers feel respected.
  Courteous manners stand above fashion.
held_out:
  Respect is what good manners whisper.
  Courtesy is the fashion of respectful people.
never_seen:
  Courteous manners make respect visible.
  Respect in everyday manners is called courtesy.

== door_shut | manners
shows:
  The {a} slams the door and the {b} bumps into it.
  A {a} shuts the door right before the {b}.
  The door swings shut by the {a} and the {b} bounces off.
  Against the door that the {a} slams bumps the {b}.
gist:
  slams the door and one bumps into it
  the door swings shut
  bounces off the shut door
means:
  Rudeness echoes longer than any insult.
  Contempt is remembered after the insult.
  Rude gestures echo for years.
  Contempt is rudeness made permanent.
  Insults echo; the rude seldom listen.
held_out:
  Rudeness echoes as contempt for years.
  The rude are remembered for contempt.
never_seen:
  Rude contempt echoes and is remembered.
  Years later, the insult still echoes.
"""
