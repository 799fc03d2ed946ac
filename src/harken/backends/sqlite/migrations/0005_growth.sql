-- so that nothing reads a whole table, however many rows it has: memory by its age, runs by their event, what ended badly
CREATE INDEX memory_by_age ON memory (feed, absent, last_seen);
CREATE INDEX memory_absent ON memory (last_seen) WHERE absent;
CREATE INDEX feeds_pushed ON feeds (id) WHERE pushed;
CREATE INDEX runs_by_event ON runs (event);
CREATE INDEX run_events_by_event ON run_events (event);
CREATE INDEX runs_ended ON runs (state) WHERE state > 6;
