-- the parts of a join that are there, see store/gathering_rules.py; NULL for runs that are no join
ALTER TABLE runs ADD COLUMN parts BLOB;

-- what limits the next runs of a trigger, until `until`: dedupe (run: the one that came first), throttle (times: when its
-- runs start), and parts that a join is without (times: when the last one happened)
CREATE TABLE marks (
    trigger INTEGER NOT NULL,
    key BLOB NOT NULL,
    until INTEGER NOT NULL,
    run BLOB,
    times BLOB,
    PRIMARY KEY (trigger, key)
) WITHOUT ROWID;
CREATE INDEX marks_by_age ON marks (until);

-- the further feeds that a trigger listens to, beside its own
CREATE TABLE trigger_feeds (
    trigger INTEGER NOT NULL,
    feed TEXT NOT NULL,
    -- as in `triggers`, for this feed
    backfilling INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (feed, trigger)
) WITHOUT ROWID;
CREATE INDEX trigger_feeds_by_trigger ON trigger_feeds (trigger);
