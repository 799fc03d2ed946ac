ALTER TABLE triggers ADD COLUMN reads_from INTEGER;
ALTER TABLE triggers ADD COLUMN backfilling INTEGER NOT NULL DEFAULT 0;
ALTER TABLE triggers ADD COLUMN reset_at INTEGER;
UPDATE triggers SET reads_from=start_line;

-- a run does not start between the two, but at the latter
ALTER TABLE runs ADD COLUMN quiet_from INTEGER;
ALTER TABLE runs ADD COLUMN quiet_until INTEGER;
-- it counts against its trigger's budget when it starts
ALTER TABLE runs ADD COLUMN budgeted INTEGER NOT NULL DEFAULT 0;

-- what: runs (by the hour), tokens and usd (by the day); since is the beginning of that hour or day
CREATE TABLE spent (
    trigger INTEGER NOT NULL,
    what TEXT NOT NULL,
    since INTEGER NOT NULL,
    amount REAL NOT NULL,
    PRIMARY KEY (trigger, what)
) WITHOUT ROWID;
