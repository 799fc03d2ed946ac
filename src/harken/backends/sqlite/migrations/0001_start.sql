CREATE TABLE feeds (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    definition BLOB NOT NULL,
    revision INTEGER NOT NULL,
    pushed INTEGER NOT NULL DEFAULT 0,
    cursor BLOB,
    watermark INTEGER,
    next_due INTEGER,
    health BLOB,
    reads INTEGER NOT NULL DEFAULT 0,
    baselined INTEGER NOT NULL DEFAULT 0,
    last_success INTEGER,
    last_tick INTEGER,
    -- the newest covered span; older ones, which a gap separates, are in `coverage`
    cover_start INTEGER,
    cover_end INTEGER,
    coverage BLOB,
    -- the current run of reads that found nothing new; it becomes a row of `ticks` when it ends
    span_result TEXT,
    span_start INTEGER,
    span_end INTEGER,
    span_count INTEGER,
    span_seen INTEGER,
    created_at INTEGER NOT NULL,
    removed_at INTEGER
);

CREATE TABLE triggers (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    feed TEXT NOT NULL,
    definition BLOB NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 1,
    -- the first event id of the epoch: ids rise, clocks may be set back
    epoch_event INTEGER NOT NULL DEFAULT 0,
    start_line INTEGER NOT NULL,
    paused TEXT NOT NULL DEFAULT '',
    fired INTEGER NOT NULL DEFAULT 0,
    last_fired_at INTEGER,
    created_at INTEGER NOT NULL,
    removed_at INTEGER
);

CREATE TABLE memory (
    feed INTEGER NOT NULL,
    mid BLOB NOT NULL,
    state BLOB,
    -- no longer listed: its state is forgotten, its count is not
    absent INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL,
    event INTEGER NOT NULL,
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    PRIMARY KEY (feed, mid)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL,
    kid BLOB NOT NULL,
    key BLOB NOT NULL,
    subject BLOB NOT NULL,
    state BLOB,
    type TEXT NOT NULL,
    occurred_at INTEGER,
    recorded_at INTEGER NOT NULL,
    repeats INTEGER NOT NULL DEFAULT 0,
    last_repeat_at INTEGER,
    verdicts BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX events_by_key ON events (kid);
CREATE INDEX events_by_feed ON events (feed);

-- state: 0 gathering, 1 held, 2 ready, 3 blocked, 4 running, 5 waiting, 6 done, 7 failed, 8 dead, 9 cancelled
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    trigger INTEGER NOT NULL,
    workflow_rev TEXT NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    max_attempts INTEGER NOT NULL DEFAULT 3,
    token INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER,
    holder TEXT,
    event INTEGER,
    input BLOB,
    slot BLOB,
    overlap TEXT,
    gather BLOB,
    gathered INTEGER NOT NULL DEFAULT 0,
    hold TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    waiting_for TEXT,
    answer BLOB,
    parent BLOB,
    replay_of BLOB,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    error BLOB,
    output BLOB
);
CREATE INDEX runs_open ON runs (state, priority, due_at, seq) WHERE state < 6;
CREATE INDEX runs_dead ON runs (seq) WHERE state = 8;
CREATE INDEX runs_by_trigger ON runs (trigger);
CREATE UNIQUE INDEX runs_gathering ON runs (trigger, gather) WHERE state = 0;
CREATE INDEX runs_blocked ON runs (slot, priority, due_at, seq) WHERE state = 3;
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE run_events (
    run INTEGER NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY (run, event)
) WITHOUT ROWID;

CREATE TABLE journal (
    run INTEGER NOT NULL,
    n INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (run, n)
) WITHOUT ROWID;

CREATE TABLE slots (
    key BLOB PRIMARY KEY,
    run INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE ticks (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    result TEXT NOT NULL,
    seen INTEGER NOT NULL,
    new INTEGER NOT NULL,
    error BLOB,
    seconds REAL NOT NULL
);
CREATE INDEX ticks_by_feed ON ticks (feed);
CREATE INDEX triggers_by_feed ON triggers (feed);

CREATE TABLE leases (
    shard INTEGER PRIMARY KEY,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    until INTEGER NOT NULL
);

CREATE TABLE documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    did TEXT NOT NULL,
    what TEXT NOT NULL,
    detail BLOB NOT NULL
);

CREATE TABLE buried (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL,
    key BLOB NOT NULL,
    reason BLOB NOT NULL,
    payload BLOB NOT NULL,
    at INTEGER NOT NULL
);
