/** No index can make the client accept a name that its key did not sign, or an address that the record does not contain. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { addressOf, conflictOf, IndexClient } from '@ron/client';
import { isRonError, sched } from '@ron/kernel';
import { addressHex, checkName, formatAddress, type NameDto, type ResolveDto, type Target } from '@ron/proto';
import { encodeNameRecord, signedNameBytes, type NameRecord } from '@ron/proto/names';
import { serve } from './fake-server.ts';

const quick = { tries_max: 1, backoff_ms: () => 1 };
const soon = Math.floor(sched.wall_ms() / 1000) + 3600;
const [A, B] = [formatAddress(new Uint8Array(32).fill(1)), formatAddress(new Uint8Array(32).fill(2))];

interface Signer {
  readonly key: string;
  readonly secret: KeyObject;
}

function newSigner(): Signer {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return { key: publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('hex'), secret: privateKey };
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

function nameOf(signer: Signer, fields: Partial<NameRecord> = {}, secret = signer.secret): NameDto {
  const record: NameRecord = {
    key: signer.key,
    label: 'docs/readme',
    ...(fields.moved_to === undefined && { value: A }),
    seq: 1,
    not_after: soon,
    ttl_s: 60,
    ...fields,
  };
  const bytes = encodeNameRecord(record);
  return {
    record: base64url(bytes),
    signature: base64url(sign(null, signedNameBytes(bytes), secret)),
    key: record.key,
    label: record.label,
    address: record.value ?? null,
    seq: record.seq,
    not_after: record.not_after,
    ttl_s: record.ttl_s,
    previous: record.previous ?? null,
    moved_to: record.moved_to ?? null,
    hash: addressHex(addressOf(bytes)),
    conflict: false,
  };
}

const signedOf = ({ record, signature }: NameDto): { record: string; signature: string } => ({ record, signature });
const isLie = (error: unknown): boolean => isRonError(error, 'integrity');
const target = (text: string): Extract<Target, { kind: 'name' }> => {
  const result = checkName(text);
  assert.ok(result.ok && result.target.kind === 'name');
  return result.target;
};

/** Answers each path with JSON; the paths are recorded. */
async function clientOf(t: TestContext, answers: Readonly<Record<string, unknown>>): Promise<IndexClient> {
  const url = await serve(t, (request, response) => {
    const answer = answers[`${request.method} ${request.url}`];
    const { status = answer === undefined ? 404 : 200 } = (answer ?? {}) as { status?: number };
    const body = Buffer.from(JSON.stringify(answer ?? {}));
    const type = status >= 400 ? 'application/problem+json' : 'application/json';
    response.writeHead(status, { 'Content-Type': type, 'Content-Length': body.length }).end(body);
  });
  return new IndexClient({ url, policy: quick });
}

test('honest names are accepted, with history, removal and a rival', async (t) => {
  const signer = newSigner();
  const first = nameOf(signer);
  const second = nameOf(signer, { seq: 2, previous: first.hash, value: B });
  const rival = nameOf(signer, { seq: 2, previous: first.hash });
  const removed = nameOf(signer, { seq: 2, previous: first.hash, value: undefined });
  const client = await clientOf(t, {
    'GET /names/docs/readme?history=1': { ...second, history: [signedOf(first)] },
    [`GET /names/docs/readme@${signer.key}`]: { ...second, conflict: true, rival: signedOf(rival) },
    'GET /names/docs/readme': removed,
    'GET /names?prefix=docs&limit=100': { names: [second], next: 'n' },
    'GET /names?prefix=docs&after=n&limit=100': { names: [nameOf(signer, { label: 'docs/z' })] },
    'PUT /names/docs/readme': first,
  });
  const { record, history } = await client.name({ label: 'docs/readme' }, { history: true });
  assert.deepEqual([record.value, record.seq, history[0]?.record.value], [B, 2, A]);
  const forked = await client.name({ label: 'docs/readme', key: signer.key });
  assert.equal(forked.rival?.record.value, A);
  assert.equal((await client.name({ label: 'docs/readme' })).record.value, undefined);
  const listed: string[] = [];
  for await (const each of client.names({ prefix: 'docs' })) listed.push(each.record.label);
  assert.deepEqual(listed, ['docs/readme', 'docs/z']);
  assert.equal((await client.putName('docs/readme', signedOf(first))).hash, first.hash);
});

test('each lie about a name is an integrity error', async (t) => {
  const [signer, other] = [newSigner(), newSigner()];
  const honest = nameOf(signer, { seq: 2, previous: 'cc'.repeat(32) });
  const flipped = Buffer.from(honest.signature, 'base64url');
  flipped[0]! ^= 1;
  const lies: Record<string, unknown> = {
    'a signature of another key': nameOf(signer, {}, other.secret),
    'a changed signature': { ...honest, signature: base64url(flipped) },
    'a short signature': { ...honest, signature: 'AAAA' },
    'the record of another key': nameOf(other),
    'the record of another label': nameOf(signer, { label: 'docs/other' }),
    'another address beside the record': { ...honest, address: B },
    'another seq beside the record': { ...honest, seq: 3 },
    'another life beside the record': { ...honest, not_after: soon + 1 },
    'another hash beside the record': { ...honest, hash: 'ab'.repeat(32) },
    'a hidden move': { ...nameOf(signer, { moved_to: other.key }), moved_to: null },
    'a conflict without a rival': { ...honest, conflict: true },
    'a rival without a conflict': { ...honest, rival: signedOf(nameOf(signer)) },
    'a rival of another key': { ...honest, conflict: true, rival: signedOf(nameOf(other)) },
    'itself as its rival': { ...honest, conflict: true, rival: signedOf(honest) },
    'a history of another key': { ...honest, history: [signedOf(nameOf(other))] },
    'a history in the wrong order': {
      ...honest,
      history: [signedOf(nameOf(signer, { seq: 3, previous: 'cc'.repeat(32) }))],
    },
    'a padded record': { ...honest, record: `${honest.record}=` },
    'another record encoding': { ...honest, record: Buffer.from('ff', 'hex').toString('base64url') },
    'no record': { ...honest, record: undefined },
    'an empty object': {},
    null: null,
  };
  const wanted = { label: 'docs/readme', key: signer.key };
  const path = `GET /names/docs/readme@${signer.key}`;
  for (const [lie, answer] of Object.entries(lies)) {
    const client = await clientOf(t, { [path]: answer });
    await assert.rejects(client.name(wanted), isLie, lie);
  }
  const client = await clientOf(t, { [path]: nameOf(signer, { not_after: 1_000_000_000 }) });
  await assert.rejects(client.name(wanted), (error) => isRonError(error, 'not_found'));
  assert.equal((await client.name(wanted, { expired: true })).record.seq, 1);
});

test('a resolved address must be that of the signed record, also after moves', async (t) => {
  const [old, now] = [newSigner(), newSigner()];
  const key = 'name:docs/readme';
  const resolved = (address: string): Partial<ResolveDto> => ({
    key,
    address: address as ResolveDto['address'],
    providers: [],
  });
  const names = {
    'GET /names/docs/readme': nameOf(old, { moved_to: now.key }),
    [`GET /names/docs/readme@${now.key}`]: nameOf(now, { value: B }),
  };
  const path = `GET /resolve/${key}`;
  const honest = await clientOf(t, { ...names, [path]: resolved(B) });
  assert.equal((await honest.resolve(target('docs/readme'))).address, B);
  const name = { key: old.key, label: 'docs/readme', seq: 9, not_after: 4_000_000_000, conflict: true };
  const untrue = await clientOf(t, { ...names, [path]: { ...resolved(B), name } });
  const verified = (await untrue.resolve(target('docs/readme'))).name;
  assert.deepEqual([verified?.key, verified?.seq, verified?.conflict], [now.key, 1, false], 'of the signed record');
  const stale = await clientOf(t, { ...names, [path]: resolved(A), [`${path}?fresh=1`]: resolved(B) });
  assert.equal((await stale.resolve(target('docs/readme'))).address, B, 'the name changed between the answers');
  for (const answer of [
    { [path]: resolved(A), [`${path}?fresh=1`]: resolved(A) },
    { [path]: { ...resolved(B), key: 'name:docs/other' } },
    { [path]: { ...resolved('b3:00'), providers: [] } },
    { [path]: resolved(B), 'GET /names/docs/readme': nameOf(now, { moved_to: old.key }) },
  ]) {
    const lying = await clientOf(t, { ...names, ...answer });
    await assert.rejects(
      lying.resolve(target('docs/readme')),
      (error) => isLie(error) || isRonError(error, 'not_found'),
    );
  }
});

test('moves in a circle end', async (t) => {
  const [left, right] = [newSigner(), newSigner()];
  const client = await clientOf(t, {
    [`GET /names/docs/readme@${left.key}`]: nameOf(left, { moved_to: right.key }),
    [`GET /names/docs/readme@${right.key}`]: nameOf(right, { moved_to: left.key }),
  });
  await assert.rejects(client.followed({ label: 'docs/readme', key: left.key }), /moved more than 4 times/);
});

test('a refused publication gives the current record, verified', async (t) => {
  const signer = newSigner();
  const [mine, current] = [nameOf(signer), nameOf(signer, { value: B })];
  const wanted = { label: 'docs/readme', key: signer.key };
  const refusal = (dto: NameDto): unknown => ({ status: 409, code: 'conflict', detail: 'no', current: dto });
  const failure = async (answer: unknown): Promise<unknown> => {
    const client = await clientOf(t, { 'PUT /names/docs/readme': answer });
    return await client.putName('docs/readme', signedOf(mine)).catch((error: unknown) => error);
  };
  assert.equal((await conflictOf(await failure(refusal(current)), wanted))?.record.value, B);
  assert.equal(await conflictOf(await failure({ status: 403, code: 'forbidden' }), wanted), undefined);
  await assert.rejects(async () => conflictOf(await failure(refusal({ ...current, seq: 9 })), wanted), isLie);
  assert.ok(isLie(await failure(current)), 'another record was stored');
});

test('a list of names without an end is refused', async (t) => {
  const client = await clientOf(t, {
    'GET /names?limit=100': { names: [], next: 'a' },
    'GET /names?after=a&limit=100': { names: [], next: 'a' },
  });
  await assert.rejects(Array.fromAsync(client.names()), isLie);
});
