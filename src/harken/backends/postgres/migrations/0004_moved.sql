-- the version of a watched run that was dealt with (see backends/watched_run_changes.py); NULL for runs that nobody watches
ALTER TABLE runs ADD COLUMN watched bigint;
-- when the run came into its state, unless that is when it was created or finished
ALTER TABLE runs ADD COLUMN since bigint;
CREATE INDEX runs_moved ON runs (seq) WHERE watched<>token*16+state;
