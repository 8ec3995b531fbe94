/** A service polls for revocations through an impostor that answers in the name of passport. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import {
  inspectToken,
  MemoryKeySource,
  signAnswer,
  subjectTag,
  type RevocationAnswer,
  type RevocationDocument,
  type RevocationPoll,
} from '@ron/auth';
import { askPassport, RevocationWatch } from '@ron/auth/service';
import { NEVER } from '@ron/kernel';
import { eventually, tempDirFor } from '@ron/testkit';
import { startService, type TestPassport } from './support.ts';

type Answer = (poll: RevocationPoll) => Promise<unknown>;
const HOUR_MS = 3_600_000;
const EVIL: RevocationDocument = { version: 9e15, all: 9e15, subjects: { [subjectTag('alice')]: 9e15 }, ids: {} };

class Impostor {
  answer: Answer;
  readonly #server: Server;
  #path = '';

  private constructor(answer: Answer) {
    this.answer = answer;
    this.#server = createServer((request, response) => {
      const query = new URL(request.url!, 'http://x').searchParams;
      const poll = {
        audience: query.get('audience') as 'storage',
        nonce: query.get('nonce')!,
        after: query.has('after') ? Number(query.get('after')) : undefined,
      };
      const lost = (): void => void response.destroy();
      this.answer(poll).then((body) => {
        const text = typeof body === 'string' ? body : JSON.stringify(body);
        response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
        response.end(text);
      }, lost);
    });
  }

  static async start(t: TestContext, answer: Answer): Promise<Impostor> {
    const impostor = new Impostor(answer);
    impostor.#path = join(tempDirFor(t), 'passport.sock');
    impostor.#server.listen(impostor.#path);
    await once(impostor.#server, 'listening');
    t.after(() => {
      impostor.#server.closeAllConnections();
      impostor.#server.close();
    });
    return impostor;
  }

  get url(): string {
    return `unix:${this.#path}`;
  }
}

async function honest(service: TestPassport, { audience, nonce, after }: RevocationPoll): Promise<RevocationAnswer> {
  const query = new URLSearchParams({ audience, nonce, ...(after !== undefined && { after: String(after) }) });
  return (await service.get(`/v1/passport/revocations?${query.toString()}`)).json;
}

test('forged, replayed, foreign and future answers change nothing; the next honest answer takes effect at once', async (t) => {
  await using service = await startService();
  const { keys } = service.passport;
  const signed = (
    poll: RevocationPoll,
    document: RevocationDocument | undefined,
    by = keys,
  ): Promise<RevocationAnswer> => signAnswer(by, poll, document, NEVER);
  // Passport would hold a poll that names the current version.
  const real: Answer = async (poll) => {
    const answer = await honest(service, { ...poll, after: undefined });
    return await signed(poll, (JSON.parse(answer.signed) as { document: RevocationDocument }).document);
  };
  const impostor = await Impostor.start(t, real);
  const problems: unknown[] = [];
  const kept: RevocationDocument[] = [];
  const watch = new RevocationWatch({
    ask: askPassport({ url: impostor.url, audience: 'storage', keys }),
    keep: (document) => Promise.resolve(void kept.push(document)),
    onProblem: (error) => problems.push(error),
  });
  const stop = new AbortController();
  const running = watch.run(stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    await running;
  });
  await eventually('the first answer is applied', () => watch.problem === undefined);
  const { json: revoked } = await service.post('revoke', { subject: 'bob' });
  await eventually('bob is revoked', () => watch.floor('bob') === revoked.epoch);
  const { version } = watch;

  const recorded = await honest(service, { audience: 'storage', nonce: 'r'.repeat(22), after: undefined });
  const strangers = new MemoryKeySource();
  t.after(() => strangers.close());
  const attacks: Record<string, Answer> = {
    'nothing new since another version': (poll) => signed({ ...poll, after: 1 }, undefined),
    'a plain document': () => Promise.resolve(EVIL),
    'no JSON': () => Promise.resolve('nonsense'),
    'a malformed answer': () => Promise.resolve({ key_id: 1, signed: {}, mac: [] }),
    'a document under another key': (poll) => signed(poll, EVIL, strangers),
    'another key under our key id': async (poll) => {
      const { key_id } = await honest(service, poll);
      return { ...(await signed(poll, EVIL, strangers)), key_id };
    },
    'a changed document': async (poll) => {
      const answer = await honest(service, { ...poll, after: undefined });
      return { ...answer, signed: answer.signed.replace(/"version":\d+/, '"version":9000000000000000') };
    },
    'a replayed answer': () => Promise.resolve(recorded),
    'the answer to another audience': (poll) => honest(service, { ...poll, audience: 'kms' }),
    'the answer to another poll': (poll) => honest(service, { ...poll, nonce: 'o'.repeat(22) }),
  };
  for (const [name, attack] of Object.entries(attacks)) {
    impostor.answer = attack;
    const before = watch.refused_total;
    await eventually(name, () => watch.refused_total > before);
    assert.deepEqual([watch.floor('alice'), watch.floor('bob'), watch.version], [0, revoked.epoch, version], name);
    assert.match(watch.problem!, /refused|JSON|no answer/, name);
    impostor.answer = real;
    await eventually(`${name}: the next honest answer is applied`, () => watch.problem === undefined);
  }
  assert.ok(problems.length <= Object.keys(attacks).length, 'one line for each attack');

  // An authentic document of a passport whose clock is wrong.
  impostor.answer = (poll) => signed(poll, { version: Date.now() + HOUR_MS, all: 0, subjects: {}, ids: {} });
  await eventually('the clock is noticed', () => /in the future/.test(watch.problem ?? ''));
  assert.throws(() => watch.floor('alice'), { code: 'not_ready', message: /in the future: set the clock/ });
  assert.equal(watch.floor('root'), 0, 'the node itself is not affected');
  impostor.answer = real;
  await eventually('it recovers', () => watch.problem === undefined);
  assert.equal(watch.floor('alice'), 0);
  assert.ok(
    kept.every((document) => document.version <= version),
    'nothing refused is stored for the next start',
  );

  // An old document undoes nothing.
  impostor.answer = (poll) => signed(poll, { version: 1, all: 0, subjects: {}, ids: {} });
  await eventually('it is reported', () => /restored to an earlier state/.test(watch.problem ?? ''));
  assert.equal(watch.floor('bob'), revoked.epoch);
});

test('one capability is revoked by its id, with all that was attenuated and issued from it', async () => {
  await using service = await startService({ flags: ['--passport.never_issue=kms:log'] });
  const ask = { audience: 'storage', scopes: ['storage:get'] };
  const issuer = (await service.post('issue', { audience: 'passport', scopes: ['passport:issue'], subject: 'alice' }))
    .json;
  const child = (await service.post('issue', { ...ask, subject: 'bob' }, issuer.token)).json;
  const other = (await service.post('issue', { ...ask, subject: 'bob' })).json;
  const root = inspectToken(await service.mint());
  assert.equal(root.chain.length, 0);
  const { chain } = inspectToken(child.token);
  assert.equal(chain[0], issuer.capability_id);
  assert.equal(chain.length, 2, 'the issuer and its issuer');
  const answer = await service.post('revoke', { capability_id: issuer.capability_id });
  assert.equal(answer.status, 200);
  assert.equal(answer.json.capability_id, issuer.capability_id);
  const verdict = async (token: string): Promise<boolean> => (await service.post('verify', { token })).json.ok;
  assert.deepEqual(await Promise.all([issuer.token, child.token, other.token].map(verdict)), [false, false, true]);
  assert.equal((await service.post('issue', ask, issuer.token)).status, 401);
  assert.equal((await service.post('revoke', { capability_id: 'x' })).status, 400);
  assert.equal((await service.post('revoke', { capability_id: issuer.capability_id, all: true })).status, 400);
});

test('capabilities are issued over a bounded number of steps', async () => {
  await using service = await startService({ flags: ['--passport.never_issue=kms:log'] });
  const ask = { audience: 'passport', scopes: ['passport:issue'] };
  let token = await service.mint();
  for (let step = 0; step < 4; step++) {
    const issued = await service.post('issue', ask, token);
    assert.equal(issued.status, 201);
    token = issued.json.token;
  }
  const refused = await service.post('issue', ask, token);
  assert.equal(refused.status, 400);
  assert.match(refused.json.detail, /at most 4 steps/);
});
