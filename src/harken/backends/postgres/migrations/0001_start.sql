-- times are microseconds since 1970, UTC; texts that a person or a service wrote are bytes, encrypted if the store is

CREATE SEQUENCE event_ids;
CREATE SEQUENCE run_seqs;

CREATE FUNCTION harken_now() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- one row: the data keys wrapped by the operator's key, or empty for a store without encryption
CREATE TABLE seal (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    wrapped text NOT NULL
);

CREATE TABLE feeds (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    -- the shard whose lease is needed to move the cursor
    shard integer NOT NULL DEFAULT 0,
    identity text NOT NULL,
    definition bytea NOT NULL,
    revision bigint NOT NULL,
    pushed boolean NOT NULL,
    cursor bytea,
    watermark bigint,
    next_due bigint,
    health bytea,
    reads bigint NOT NULL DEFAULT 0,
    seen bigint NOT NULL DEFAULT 0,
    baselined boolean NOT NULL DEFAULT false,
    last_success bigint,
    last_tick bigint,
    -- the newest covered span; older ones, which a gap separates, are in `coverage`
    cover_start bigint,
    cover_end bigint,
    coverage bytea,
    -- the current span of reads that found nothing new; it becomes a row of `ticks` when it ends
    span_result text,
    span_start bigint,
    span_end bigint,
    span_count bigint,
    span_seen bigint,
    created_at bigint NOT NULL,
    removed_at bigint
) WITH (fillfactor = 60);

CREATE TABLE triggers (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uid text NOT NULL UNIQUE,
    name text NOT NULL UNIQUE,
    feed text NOT NULL,
    definition bytea NOT NULL,
    epoch bigint NOT NULL DEFAULT 1,
    -- the first event id of the epoch: ids rise, clocks may be set back
    epoch_event bigint NOT NULL DEFAULT 0,
    start_line bigint NOT NULL,
    reads_from bigint NOT NULL,
    reset_at bigint,
    backfilling boolean NOT NULL DEFAULT false,
    paused bytea NOT NULL DEFAULT '',
    fired bigint NOT NULL DEFAULT 0,
    last_fired_at bigint,
    done bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    removed_at bigint
) WITH (fillfactor = 60);
CREATE INDEX triggers_by_feed ON triggers (feed);

-- what commits and settlements add to the counters of a trigger; folded into `triggers` now and then,
-- so that replicas do not queue for one row
CREATE TABLE tallies (
    trigger integer NOT NULL,
    fired integer NOT NULL,
    done integer NOT NULL,
    fired_at bigint
);

CREATE TABLE memory (
    feed integer NOT NULL,
    mid bytea NOT NULL,
    state bytea,
    -- no longer listed by its source: the state is forgotten, the count of changes is kept
    absent boolean NOT NULL DEFAULT false,
    seq bigint NOT NULL,
    event bigint NOT NULL,
    first_seen bigint NOT NULL,
    last_seen bigint NOT NULL,
    PRIMARY KEY (feed, mid)
) WITH (fillfactor = 85);

CREATE TABLE events (
    id bigint PRIMARY KEY,
    feed integer NOT NULL,
    kid bytea NOT NULL,
    key bytea NOT NULL,
    subject bytea NOT NULL,
    state bytea,
    type text NOT NULL,
    occurred_at bigint,
    recorded_at bigint NOT NULL,
    repeats integer NOT NULL DEFAULT 0,
    last_repeat_at bigint,
    verdicts bytea NOT NULL,
    data bytea NOT NULL,
    -- by the server's clock: a transaction under way with a lower id began before this, and `events_after` waits for it
    written_at bigint NOT NULL DEFAULT harken_now()
);
CREATE INDEX events_by_key ON events (kid);
CREATE INDEX events_by_feed ON events (feed, id);

-- state: 0 gathering, 1 held, 2 ready, 3 blocked, 4 running, 5 waiting, 6 done, 7 failed, 8 dead, 9 cancelled
CREATE TABLE runs (
    seq bigint PRIMARY KEY,
    id bytea NOT NULL UNIQUE,
    trigger integer NOT NULL,
    workflow_rev text NOT NULL,
    state smallint NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    attempt integer NOT NULL DEFAULT 1,
    max_attempts integer NOT NULL DEFAULT 3,
    token bigint NOT NULL DEFAULT 0,
    lease_until bigint,
    holder text,
    event bigint,
    input bytea,
    slot bytea,
    overlap text,
    gather bytea,
    gathered integer NOT NULL DEFAULT 1,
    hold text,
    -- the run does not start between the two, but at quiet_until
    quiet_from bigint,
    quiet_until bigint,
    -- the run counts against its trigger's budget when it starts
    budgeted boolean NOT NULL DEFAULT false,
    cancel_requested boolean NOT NULL DEFAULT false,
    waiting_for text,
    answer bytea,
    parent bytea,
    replay_of bytea,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    error bytea,
    output bytea
);
CREATE INDEX runs_ready ON runs (priority, due_at, seq) WHERE state = 2;
CREATE INDEX runs_timed ON runs (due_at) WHERE state IN (0, 5);
CREATE INDEX runs_claimed ON runs (lease_until) WHERE state = 4;
CREATE INDEX runs_careful ON runs (due_at) WHERE state = 2 AND (budgeted OR quiet_from IS NOT NULL);
CREATE INDEX runs_short ON runs (trigger) WHERE state = 1 AND hold = 'budget';
CREATE INDEX runs_held ON runs (trigger) WHERE state = 1;
CREATE INDEX runs_blocked ON runs (slot, priority, due_at, seq) WHERE state = 3;
CREATE INDEX runs_dead ON runs (seq) WHERE state = 8;
CREATE UNIQUE INDEX runs_gathering ON runs (trigger, gather) WHERE state = 0;
CREATE INDEX runs_by_trigger ON runs (trigger, seq);

-- every priority that a run ever had: a claim reads one after the other
CREATE TABLE priorities (
    priority integer PRIMARY KEY
);
INSERT INTO priorities VALUES (0);

-- events of runs that gathered them or were started by hand; the others are found by runs.event
CREATE TABLE run_events (
    run bigint NOT NULL,
    event bigint NOT NULL,
    PRIMARY KEY (run, event)
);
CREATE INDEX run_events_by_event ON run_events (event);

CREATE TABLE journal (
    run bigint NOT NULL,
    n integer NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (run, n)
);

CREATE TABLE slots (
    key bytea PRIMARY KEY,
    run bigint NOT NULL
);

-- what: runs (by the hour), tokens and usd (by the day); since is the beginning of that hour or day
CREATE TABLE spent (
    trigger integer NOT NULL,
    what text NOT NULL,
    since bigint NOT NULL,
    amount double precision NOT NULL,
    PRIMARY KEY (trigger, what)
);

CREATE TABLE ticks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed integer NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    count bigint NOT NULL,
    result text NOT NULL,
    seen bigint NOT NULL,
    new bigint NOT NULL,
    error bytea,
    seconds double precision NOT NULL
);
CREATE INDEX ticks_by_feed ON ticks (feed, id);

CREATE TABLE leases (
    shard integer PRIMARY KEY,
    holder text NOT NULL,
    token bigint NOT NULL,
    until bigint NOT NULL
);

CREATE TABLE documents (
    kind text NOT NULL,
    name text NOT NULL,
    value bytea NOT NULL,
    revision bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    who text NOT NULL,
    did text NOT NULL,
    what text NOT NULL,
    detail bytea NOT NULL
);

CREATE TABLE buried (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed integer NOT NULL,
    key bytea NOT NULL,
    reason bytea NOT NULL,
    payload bytea NOT NULL,
    at bigint NOT NULL
);
CREATE INDEX buried_by_feed ON buried (feed, id);
