/** A strict in-memory witness (C2SP tlog-witness) for tests. */
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decodeCheckpoint, encodeCheckpoint, fromBase64, type Checkpoint } from '../note/checkpoint.ts';
import { EMPTY_ROOT } from '../tree/hash.ts';
import { formatVkey, KeyType, parseVkey, verifyNote } from '../note/note-key.ts';
import { formatSignature, parseNote } from '../note/note.ts';
import { isSame, verifyConsistency } from '../tree/tree.ts';

export interface WitnessServer extends AsyncDisposable {
  readonly url: string;
  readonly vkey: string;
  /** The last checkpoint that it cosigned. Tests set it to simulate a submission by another client. */
  latest: Checkpoint | undefined;
  /** The status of every response. */
  readonly answers: number[];
  /** A response that replaces its own. */
  override: { status: number; text: string } | undefined;
}

export async function startWitness(origin: string, log_vkeys: readonly string[]): Promise<WitnessServer> {
  const name = 'witness.example/w1';
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const bare = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const { vkey, key_id } = parseVkey(formatVkey(name, KeyType.ed25519Cosignature, bare));
  const trusted = log_vkeys.map(parseVkey);

  const answer = (body: string): { status: number; text: string } => {
    const parsed = parseRequest(body);
    if (parsed === undefined) return { status: 400, text: '' };
    const { old, proof, note } = parsed;
    const checkpoint = decodeCheckpoint(note.text);
    if (checkpoint.origin !== origin) return { status: 404, text: '' };
    try {
      verifyNote(note, trusted);
    } catch {
      return { status: 403, text: '' };
    }
    if (old > checkpoint.size) return { status: 400, text: '' };
    const latest = witness.latest ?? { origin, size: 0, root: EMPTY_ROOT };
    const conflict = { status: 409, text: `${latest.size}\n` };
    if (old !== latest.size) return conflict;
    if (old === checkpoint.size && !isSame(latest.root, checkpoint.root)) return conflict;
    const consistency = {
      from: old,
      from_root: latest.root,
      to: checkpoint.size,
      to_root: checkpoint.root,
      path: proof,
    };
    if (!verifyConsistency(consistency)) return { status: 422, text: '' };
    witness.latest = checkpoint;
    return { status: 200, text: formatSignature({ name, key_id, signature: cosignature(checkpoint, privateKey) }) };
  };

  const server = createServer((request, response) => void serve(request, response));
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const isCall = request.method === 'POST' && request.url === '/add-checkpoint';
    const found = isCall ? answer(Buffer.concat(pieces).toString('utf8')) : { status: 404, text: '' };
    const { status, text } = witness.override ?? found;
    witness.answers.push(status);
    response.writeHead(status, { 'content-type': status === 409 ? 'text/x.tlog.size' : 'text/plain; charset=utf-8' });
    response.end(text);
  };
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const witness: WitnessServer = {
    url: `http://127.0.0.1:${port}`,
    vkey,
    latest: undefined,
    answers: [],
    override: undefined,
    [Symbol.asyncDispose]: () => closed(server),
  };
  return witness;
}

function cosignature(checkpoint: Checkpoint, key: KeyObject): Buffer {
  const time_s = 1_679_315_147n;
  const message = `cosignature/v1\ntime ${time_s}\n${encodeCheckpoint(checkpoint)}`;
  const time = Buffer.alloc(8);
  time.writeBigUInt64BE(time_s);
  return Buffer.concat([time, sign(null, Buffer.from(message), key)]);
}

function parseRequest(body: string): { old: number; proof: Buffer[]; note: ReturnType<typeof parseNote> } | undefined {
  const border = body.indexOf('\n\n');
  const [first = '', ...lines] = body.slice(0, border).split('\n');
  const old = /^old (0|[1-9]\d*)$/.exec(first)?.[1];
  const proof = lines.map(fromBase64);
  if (border === -1 || old === undefined || lines.length > 63) return undefined;
  if (!proof.every((hash) => hash?.length === 32)) return undefined;
  return { old: Number(old), proof: proof as Buffer[], note: parseNote(body.slice(border + 2)) };
}

async function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise<void>((resolve) => void server.close(() => resolve()));
}
