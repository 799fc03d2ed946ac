-- the parts of a join that are there, see store/gathering_rules.py; NULL for runs that are no join
ALTER TABLE runs ADD COLUMN parts bytea;

-- what limits the next runs of a trigger, until `until`: dedupe (run: the one that came first), throttle (times: when its
-- runs start), and parts that a join is without (times: when the last one happened)
CREATE TABLE marks (
    trigger integer NOT NULL,
    key bytea NOT NULL,
    until bigint NOT NULL,
    run bytea,
    times bytea,
    PRIMARY KEY (trigger, key)
);
CREATE INDEX marks_by_age ON marks (until);

-- the further feeds that a trigger listens to, beside its own
CREATE TABLE trigger_feeds (
    trigger integer NOT NULL,
    feed text NOT NULL,
    -- as in `triggers`, for this feed
    backfilling boolean NOT NULL DEFAULT false,
    PRIMARY KEY (feed, trigger)
);
CREATE INDEX trigger_feeds_by_trigger ON trigger_feeds (trigger);
