-- new items that reads have found, and runs that came to a good end, counted for good: their rows are deleted when old
ALTER TABLE feeds ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE triggers ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
UPDATE feeds SET seen=coalesce((SELECT sum(new) FROM ticks WHERE ticks.feed=feeds.id), 0);
UPDATE triggers SET done=(SELECT count(*) FROM runs WHERE runs.trigger=triggers.id AND state=6);
