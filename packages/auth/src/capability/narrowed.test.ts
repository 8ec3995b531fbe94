/** A token that was sent is of no use for another request. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched } from '@ron/kernel';
import type { AccessRequest, Scope } from '@ron/proto';
import { signal } from '../../test/support.ts';
import { Checker } from '../checker/checker.ts';
import { MemoryKeySource } from '../keys/key-source.ts';
import { attenuate, inspectToken, mint } from './capability.ts';
import { CAPABILITY_LIMITS } from './limits.ts';
import { narrowed, NARROWED_MS } from './narrowed.ts';

const BODY = Buffer.from('{"kid":"a"}');

async function setUp(): Promise<{
  token: string;
  /** Whether a request with this token and body passes both phases. */
  accepts: (token: string, body?: Uint8Array, more?: Partial<AccessRequest>) => Promise<boolean>;
}> {
  const keys = new MemoryKeySource();
  const scopes: readonly Scope[] = ['kms:derive', 'kms:read'];
  const { token } = await mint(keys, { audience: 'kms', scopes, ttl_ms: 3_600_000 }, signal);
  const checker = new Checker({ audience: 'kms', keys });
  return {
    token,
    async accepts(sent, body, more = {}) {
      const request = { authorization: `Bearer ${sent}`, scope: 'kms:derive', source_ip: '::1', ...more } as const;
      const body_bytes = body?.length ?? 0;
      const verdict = await checker.checkHeaders({ ...request, body_bytes }, signal);
      if (!verdict.ok) return false;
      if (body !== undefined) verdict.phase2.update(body);
      return (verdict.phase2.end() ?? verdict.phase2.settle()) === undefined;
    },
  };
}

test('a narrowed token is accepted with its body and refused with another one or none', async () => {
  const { token, accepts } = await setUp();
  const sent = narrowed(token, { audience: 'kms', body: BODY });
  assert.equal(await accepts(sent, BODY), true);
  assert.equal(await accepts(sent, Buffer.from('{"kid":"b"}')), false);
  assert.equal(await accepts(sent), false);
});

test('the token of a request without a body allows none', async () => {
  const { token, accepts } = await setUp();
  const sent = narrowed(token, { audience: 'kms', body: new Uint8Array(0) });
  assert.equal(await accepts(sent, undefined, { scope: 'kms:read' }), true);
  assert.equal(await accepts(sent, BODY), false);
});

test('a sent token lives for seconds; one that expires sooner is not extended', async () => {
  const { token, accepts } = await setUp();
  const sent = narrowed(token, { audience: 'kms', body: undefined });
  assert.equal(await accepts(sent, BODY), true);
  const left_ms = inspectToken(sent).expires_ms - sched.wall_ms();
  assert.ok(left_ms > 0 && left_ms <= NARROWED_MS, `${left_ms} ms`);
  const dying = attenuate(token, [`expires < ${sched.wall_ms() + 1000}`]);
  const { expires_ms } = inspectToken(dying);
  assert.equal(inspectToken(narrowed(dying, { audience: 'kms', body: undefined })).expires_ms, expires_ms);
});

test('a token for another audience, or without room, is not sent', async () => {
  const { token } = await setUp();
  assert.throws(() => narrowed(token, { audience: 'storage', body: undefined }), /for kms: it is not sent to storage/);
  const full = attenuate(token, Array<string>(CAPABILITY_LIMITS.caveats_max - 3).fill('bytes <= 1'));
  assert.throws(() => narrowed(full, { audience: 'kms', body: BODY }), /would exceed a limit/);
  assert.throws(() => narrowed('AAAA', { audience: 'kms', body: BODY }), /not a capability/);
});
