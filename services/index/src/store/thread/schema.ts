/**
 * The tables of the index database.
 *
 * Subjects and peers are interned: a provider takes about 110 bytes, its index included. Triggers keep the
 * counters, so that a quota is checked without a scan and no code path can forget to count.
 */

/** "ronI": marks the file as a database of this service. */
export const APPLICATION_ID = 0x72_6f_6e_49;
export const SCHEMA_VERSION = 1;

const TABLES = `
CREATE TABLE state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  epoch TEXT NOT NULL,
  applied INTEGER NOT NULL,
  applied_leaf BLOB,
  providers INTEGER NOT NULL,
  records INTEGER NOT NULL,
  peers INTEGER NOT NULL,
  objects INTEGER NOT NULL,
  strangers INTEGER NOT NULL
);
CREATE TABLE signer (key BLOB PRIMARY KEY, names INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE name (
  id INTEGER PRIMARY KEY,
  label TEXT NOT NULL,
  key BLOB NOT NULL,
  seq INTEGER NOT NULL,
  not_after INTEGER NOT NULL,
  record BLOB NOT NULL,
  signature BLOB NOT NULL,
  hash BLOB NOT NULL,
  is_own INTEGER NOT NULL,
  is_kept INTEGER NOT NULL,
  used INTEGER NOT NULL,
  dropped INTEGER NOT NULL DEFAULT 0,
  UNIQUE (label, key)
);
CREATE INDEX name_own ON name (label, key) WHERE is_own = 1;
CREATE INDEX name_used ON name (used) WHERE is_kept = 0;
CREATE TABLE rival (
  name INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL,
  not_after INTEGER NOT NULL,
  record BLOB NOT NULL,
  signature BLOB NOT NULL,
  hash BLOB NOT NULL
);
CREATE TABLE history (
  name INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  hash BLOB NOT NULL,
  not_after INTEGER NOT NULL,
  record BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY (name, seq, hash)
) WITHOUT ROWID;
CREATE TABLE trust (prefix TEXT PRIMARY KEY, key BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE pin (target TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE cursor (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE party (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  providers INTEGER NOT NULL DEFAULT 0,
  records INTEGER NOT NULL DEFAULT 0,
  uses INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX party_unused ON party (id) WHERE providers = 0 AND records = 0 AND uses = 0;
CREATE TABLE object (
  address BLOB PRIMARY KEY,
  position BLOB NOT NULL,
  size INTEGER NOT NULL,
  media_type TEXT,
  announced_ms INTEGER NOT NULL,
  subject INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX object_position ON object (position);
CREATE TABLE provider (
  hash BLOB NOT NULL,
  peer INTEGER NOT NULL,
  subject INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (hash, peer)
) WITHOUT ROWID;
CREATE INDEX provider_expiry ON provider (expires_ms);
CREATE TABLE entry (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  subject INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX entry_expiry ON entry (expires_ms);
`;

/** Counters of the rows that a quota bounds. */
export const COUNTERS = `
CREATE TRIGGER object_added AFTER INSERT ON object BEGIN
  UPDATE state SET objects = objects + 1 WHERE id = 1;
  UPDATE party SET uses = uses + 1 WHERE id = NEW.subject;
END;
CREATE TRIGGER object_removed AFTER DELETE ON object BEGIN
  UPDATE state SET objects = objects - 1 WHERE id = 1;
  UPDATE party SET uses = uses - 1 WHERE id = OLD.subject;
END;
CREATE TRIGGER provider_added AFTER INSERT ON provider BEGIN
  UPDATE state SET providers = providers + 1 WHERE id = 1;
  UPDATE party SET providers = providers + 1 WHERE id = NEW.subject;
  UPDATE party SET uses = uses + 1 WHERE id = NEW.peer;
END;
CREATE TRIGGER provider_removed AFTER DELETE ON provider BEGIN
  UPDATE state SET providers = providers - 1 WHERE id = 1;
  UPDATE party SET providers = providers - 1 WHERE id = OLD.subject;
  UPDATE party SET uses = uses - 1 WHERE id = OLD.peer;
END;
CREATE TRIGGER record_added AFTER INSERT ON entry WHEN NEW.key GLOB '/dht/*' BEGIN
  UPDATE state SET records = records + 1 WHERE id = 1;
  UPDATE party SET records = records + 1 WHERE id = NEW.subject;
END;
CREATE TRIGGER record_removed AFTER DELETE ON entry WHEN OLD.key GLOB '/dht/*' BEGIN
  UPDATE state SET records = records - 1 WHERE id = 1;
  UPDATE party SET records = records - 1 WHERE id = OLD.subject;
END;
CREATE TRIGGER peer_added AFTER INSERT ON entry WHEN NEW.key NOT GLOB '/dht/*' BEGIN
  UPDATE state SET peers = peers + 1 WHERE id = 1;
  UPDATE party SET uses = uses + 1 WHERE id = NEW.subject;
END;
CREATE TRIGGER peer_removed AFTER DELETE ON entry WHEN OLD.key NOT GLOB '/dht/*' BEGIN
  UPDATE state SET peers = peers - 1 WHERE id = 1;
  UPDATE party SET uses = uses - 1 WHERE id = OLD.subject;
END;
CREATE TRIGGER name_added AFTER INSERT ON name BEGIN
  UPDATE state SET strangers = strangers + 1 WHERE id = 1 AND NEW.is_kept = 0;
  INSERT INTO signer SELECT NEW.key, 1 WHERE NEW.is_own = 1 ON CONFLICT (key) DO UPDATE SET names = names + 1;
END;
CREATE TRIGGER name_removed AFTER DELETE ON name BEGIN
  UPDATE state SET strangers = strangers - 1 WHERE id = 1 AND OLD.is_kept = 0;
  UPDATE signer SET names = names - 1 WHERE key = OLD.key AND OLD.is_own = 1;
  DELETE FROM rival WHERE name = OLD.id;
  DELETE FROM history WHERE name = OLD.id;
END;
CREATE TRIGGER name_kept AFTER UPDATE OF is_kept ON name WHEN OLD.is_kept = 0 AND NEW.is_kept = 1 BEGIN
  UPDATE state SET strangers = strangers - 1 WHERE id = 1;
END;
CREATE TRIGGER name_owned AFTER UPDATE OF is_own ON name WHEN OLD.is_own <> NEW.is_own BEGIN
  INSERT INTO signer VALUES (NEW.key, NEW.is_own) ON CONFLICT (key) DO UPDATE SET names = names + NEW.is_own - OLD.is_own;
END;
`;

export const SCHEMA = `
${TABLES}
${COUNTERS}
PRAGMA application_id = ${APPLICATION_ID};
PRAGMA user_version = ${SCHEMA_VERSION};
`;
