/**
 * A witness (C2SP tlog-witness): remembers the latest checkpoint of each log and cosigns only checkpoints that extend it.
 *
 *     <dir>/key            the private key, mode 0600, created at the first start: PRIVATE+KEY+<name>+<id>+<base64>
 *     <dir>/logs/<hash>    the latest cosigned checkpoint of one origin; <hash> is the SHA-256 of the origin
 *
 * Contract: a checkpoint is durable before its cosignature is returned, so no crash lets the witness cosign two roots of one
 * size. Its time stamp is informative: no decision depends on a clock. A record that cannot be read refuses its log; it
 * is never replaced. A key of the log `<origin>` is also trusted for its successors (note/successor.ts), except for a
 * successor whose own key was given. One process at a time may open a directory.
 * Bound: one submission at a time, `WAITERS_MAX` wait; `LOGS_MAX` keys with `SUCCESSORS_MAX` successors each.
 * Overflow: `busy`; status 507 for a further successor, until its own key is given.
 * Cancellation: a submission leaves the queue with its signal's reason; once it is being written it ends.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, hash, sign, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { Mutex, RonError, sched } from '@ron/kernel';
import { readSecret, readWhole, realFileSystem, rethrowDisk, writeSecret, writeWhole, type FileSystem } from '@ron/log';
import { decodeCheckpoint, encodeCheckpoint, fromBase64, type Checkpoint } from '../note/checkpoint.ts';
import { formatVkey, KeyType, parseVkey, renamedVkey, verifyNote, type NoteKey } from '../note/note-key.ts';
import { formatSignature, isKeyName, parseNote, type Note } from '../note/note.ts';
import { isSuccessor } from '../note/successor.ts';
import { EMPTY_ROOT } from '../tree/hash.ts';
import { isSame, verifyConsistency } from '../tree/tree.ts';

/** The largest accepted request: a proof of 63 hashes and a checkpoint with its signatures. */
export const SUBMISSION_BYTES_MAX = 64 * 1024;
const WAITERS_MAX = 64;
const LOGS_MAX = 256;
const SUCCESSORS_MAX = 99;
const PROOF_LINES_MAX = 63;
const KEY_BYTES_MAX = 1024;
const RECORD_BYTES_MAX = 1024;
const SEED_BYTES = 32;
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

export interface CosignerInit {
  readonly dir: string;
  /** The verification keys of the logs. Each key has the origin of its log as its name. */
  readonly logs: readonly string[];
  /** The name of the witness in its signatures. Default: the stored one, or a random one. */
  readonly name?: string | undefined;
  readonly fs?: FileSystem | undefined;
}

/** The answer to a submission, as HTTP. */
export interface CosignerAnswer {
  readonly status: 200 | 400 | 403 | 404 | 409 | 422 | 507;
  readonly media_type: string;
  readonly text: string;
}

const TEXT = 'text/plain; charset=utf-8';
const answer = (status: CosignerAnswer['status'], text: string): CosignerAnswer => ({
  status,
  media_type: status === 409 ? 'text/x.tlog.size' : TEXT,
  text,
});

export class Cosigner implements AsyncDisposable {
  /** The key that verifies its cosignatures. */
  readonly vkey: string;
  readonly #key: NoteKey;
  readonly #private: KeyObject;
  readonly #trusted: readonly NoteKey[];
  readonly #dir: string;
  readonly #fs: FileSystem;
  readonly #lock: Disposable | undefined;
  readonly #mutex = new Mutex('witness', { waiters_max: WAITERS_MAX });

  private constructor(init: CosignerInit, key: StoredKey, trusted: readonly NoteKey[], lock: Disposable | undefined) {
    this.vkey = key.vkey;
    this.#key = parseVkey(key.vkey);
    this.#private = key.private;
    this.#trusted = trusted;
    this.#dir = join(init.dir, 'logs');
    this.#fs = init.fs ?? realFileSystem;
    this.#lock = lock;
  }

  static async open(init: CosignerInit): Promise<Cosigner> {
    const { dir, logs, name, fs = realFileSystem } = init;
    const trusted = logs.map(parseVkey);
    if (trusted.length === 0 || trusted.length > LOGS_MAX)
      throw new RonError('validation', `a witness needs 1 to ${LOGS_MAX} keys of logs`);
    await fs.makeDir(join(dir, 'logs')).catch(rethrowDisk);
    const lock = fs.lock?.(join(dir, 'lock'));
    if (fs.lock !== undefined && lock === undefined)
      throw new RonError('conflict', `${dir} is in use by another process: stop it first`);
    try {
      return new Cosigner(init, await openKey(join(dir, 'key'), name), trusted, lock);
    } catch (error) {
      lock?.[Symbol.dispose]();
      return rethrowDisk(error);
    }
  }

  /** Answers one `add-checkpoint` request. Throws `integrity` if the record of the log is damaged. */
  async add(body: string, signal: AbortSignal): Promise<CosignerAnswer> {
    const request = parseRequest(body);
    if (request === undefined) return answer(400, 'not an add-checkpoint request\n');
    const { old, checkpoint } = request;
    const keys = this.#keysOf(checkpoint.origin);
    if (keys.length === 0) return answer(404, 'this witness does not know the log\n');
    if (!isSignedBy(request.note, keys)) return answer(403, 'no trusted key of the log signed the checkpoint\n');
    if (old > checkpoint.size) return answer(400, 'the old size is larger than the checkpoint\n');
    // [tlog-witness] The comparison with the record and its replacement are one step.
    return await this.#mutex.run(signal, () => this.#extend(request).catch(rethrowDisk));
  }

  /** The latest checkpoint that was cosigned for a log. */
  async latest(origin: string): Promise<Checkpoint | undefined> {
    const path = this.#recordOf(origin);
    const bytes = await readWhole(this.#fs, path, RECORD_BYTES_MAX);
    if (bytes === undefined) return undefined;
    try {
      const found = decodeCheckpoint(bytes.toString('utf8'));
      if (found.origin === origin) return found;
    } catch {
      // Reported below.
    }
    throw new RonError('integrity', `${path} is damaged: restore it, or begin a new witness with a new key`);
  }

  /** Ends the submission in progress and unlocks the directory. */
  async close(): Promise<void> {
    await this.#mutex.close();
    this.#lock?.[Symbol.dispose]();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #extend({ old, proof, checkpoint }: Submission): Promise<CosignerAnswer> {
    const { origin, size, root } = checkpoint;
    const known = await this.latest(origin);
    if (known === undefined && !(await this.#hasRoom(origin)))
      return answer(507, `the log has ${SUCCESSORS_MAX} successors: give the witness the key of this one\n`);
    const latest = known ?? { origin, size: 0, root: EMPTY_ROOT };
    const isFork = old === size && !isSame(latest.root, root);
    if (old !== latest.size || isFork) return answer(409, `${latest.size}\n`);
    const isExtension = verifyConsistency({ from: old, from_root: latest.root, to: size, to_root: root, path: proof });
    if (!isExtension) return answer(422, 'the proof does not lead from the cosigned checkpoint to this one\n');
    const text = encodeCheckpoint(checkpoint);
    if (size > latest.size) await writeWhole(this.#fs, this.#recordOf(origin), Buffer.from(text));
    return answer(200, this.#cosign(text));
  }

  #cosign(text: string): string {
    const time_s = Math.floor(sched.wall_ms() / 1000);
    const time = Buffer.alloc(8);
    time.writeBigUInt64BE(BigInt(time_s));
    const signature = sign(null, Buffer.from(`cosignature/v1\ntime ${time_s}\n${text}`), this.#private);
    const { name, key_id } = this.#key;
    return formatSignature({ name, key_id, signature: Buffer.concat([time, signature]) });
  }

  /** The keys that may sign checkpoints of this origin. */
  #keysOf(origin: string): NoteKey[] {
    const own = this.#trusted.filter((key) => key.name === origin);
    if (own.length > 0) return own;
    const former = this.#trusted.filter((key) => isSuccessor(key.name, origin));
    return former.map((key) => parseVkey(renamedVkey(key.vkey, origin)));
  }

  /** Whether the record of one more log may be created. Only successors without a key of their own are counted. */
  async #hasRoom(origin: string): Promise<boolean> {
    if (this.#trusted.some((key) => key.name === origin)) return true;
    const former = this.#trusted.find((key) => isSuccessor(key.name, origin))!.name;
    let successors = 0;
    for (const name of await this.#fs.list(this.#dir)) {
      const bytes = await readWhole(this.#fs, join(this.#dir, name), RECORD_BYTES_MAX);
      const [found = ''] = (bytes?.toString('utf8') ?? '').split('\n', 1);
      if (isSuccessor(former, found)) successors += 1;
    }
    return successors < SUCCESSORS_MAX;
  }

  #recordOf(origin: string): string {
    return join(this.#dir, hash('sha256', origin));
  }
}

function isSignedBy(note: Note, keys: readonly NoteKey[]): boolean {
  try {
    return verifyNote(note, keys).length > 0;
  } catch {
    return false;
  }
}

interface Submission {
  readonly old: number;
  readonly proof: readonly Buffer[];
  readonly note: Note;
  readonly checkpoint: Checkpoint;
}

function parseRequest(body: string): Submission | undefined {
  const border = body.indexOf('\n\n');
  const [first = '', ...lines] = body.slice(0, border).split('\n');
  const old = /^old (0|[1-9]\d{0,15})$/.exec(first)?.[1];
  if (border === -1 || old === undefined || lines.length > PROOF_LINES_MAX) return undefined;
  const proof = lines.map(fromBase64).filter((each) => each?.length === SEED_BYTES);
  if (proof.length < lines.length) return undefined;
  try {
    const note = parseNote(body.slice(border + 2));
    return { old: Number(old), proof: proof as Buffer[], note, checkpoint: decodeCheckpoint(note.text) };
  } catch {
    return undefined;
  }
}

interface StoredKey {
  readonly vkey: string;
  readonly private: KeyObject;
}

/** Reads the private key, or creates it. */
async function openKey(path: string, name: string | undefined): Promise<StoredKey> {
  const stored = await readSecret(path, KEY_BYTES_MAX);
  if (stored !== undefined) {
    const key = decodeKey(stored);
    if (key === undefined) throw new RonError('integrity', `${path} is damaged: restore it`);
    const found = parseVkey(key.vkey).name;
    if (name !== undefined && name !== found)
      throw new RonError(
        'validation',
        `the name of this witness is ${found}, not ${name}: its key belongs to the name`,
      );
    return key;
  }
  const wanted = name ?? `ron.local/witness/${Buffer.from(sched.randomBytes(6)).toString('hex')}`;
  if (!isKeyName(wanted))
    throw new RonError('validation', 'the name of a witness must not contain spaces or plus signs');
  const seed = generateKeyPairSync('ed25519').privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-SEED_BYTES);
  const key = keyOf(wanted, seed);
  const [, id] = key.vkey.split('+');
  const encoded = Buffer.concat([Uint8Array.of(KeyType.ed25519Cosignature), seed]).toString('base64');
  await writeSecret(path, `PRIVATE+KEY+${wanted}+${id}+${encoded}\n`).catch(rethrowDisk);
  return key;
}

function decodeKey(text: string): StoredKey | undefined {
  const [, name = '', id, encoded = ''] = /^PRIVATE\+KEY\+([^+]+)\+([0-9a-f]{8})\+(\S+)\n$/.exec(text) ?? [];
  const bytes = fromBase64(encoded);
  if (bytes?.[0] !== KeyType.ed25519Cosignature || bytes.length !== SEED_BYTES + 1) return undefined;
  const key = keyOf(name, bytes.subarray(1));
  return key.vkey.split('+')[1] === id ? key : undefined;
}

function keyOf(name: string, seed: Uint8Array): StoredKey {
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' });
  const bare = createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-SEED_BYTES);
  return { vkey: formatVkey(name, KeyType.ed25519Cosignature, bare), private: key };
}
