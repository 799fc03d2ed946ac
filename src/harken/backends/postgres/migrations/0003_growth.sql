-- so that retention reads only what may be forgotten, however much a feed remembers
CREATE INDEX memory_by_age ON memory (feed, absent, last_seen);
CREATE INDEX memory_absent ON memory (last_seen) WHERE absent;
CREATE INDEX feeds_pushed ON feeds (id) WHERE pushed;
-- failed, dead and cancelled: with it, runs are counted without reading them
CREATE INDEX runs_ended ON runs (state) WHERE state > 6;
