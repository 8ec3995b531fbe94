import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, FairQueue, type BatchQueue, type Piece } from '@ron/kernel';
import type { Auditor } from '../audit/auditor.ts';
import { indexOf } from '../keys/testing.ts';
import type { KeyRecord } from '../keys/key-record.ts';
import { SigningService, type SignItem } from './signing-service.ts';
import { Signer, type SignBatch } from './signer.ts';

const NAME = 'acme/raw/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';
const KEY: KeyRecord = {
  name: NAME,
  tenant: 'acme',
  purpose: 'raw',
  alg: 'ed25519',
  verify_mode: 'or',
  min_version: 1,
  imported: false,
  versions: [{ version: 1, handle: 'k1', public: [], created_ms: 0 }],
};

/** The costs that a request submits to the queue, per piece. */
async function costsOf(items: readonly SignItem[]): Promise<number[]> {
  const costs: number[] = [];
  const batch = { sign: () => Promise.resolve([]) } as unknown as SignBatch;
  const submit = async <A>(cost_us: number, work: Piece<SignBatch, A>['work']): Promise<A> => {
    costs.push(cost_us);
    return await work(batch);
  };
  const queue: Pick<BatchQueue<SignBatch>, 'pieces_max' | 'submit' | 'submitAll'> = {
    pieces_max: new FairQueue({ capacity: 512, keys_max: 1 }).together_max,
    submit: (_tenant, cost_us, _deadline, work) => submit(cost_us, work),
    submitAll: (_tenant, pieces) => Promise.all(pieces.map(({ cost_us, work }) => submit(cost_us, work))),
  };
  const auditor = { begin: () => undefined, recordSuccess: () => Promise.resolve(1) } as unknown as Auditor;
  const signer = new Signer({ index: indexOf(KEY) });
  const ledger = { once: () => Promise.reject(new Error('there is no op_id')) };
  const signing = new SigningService({ queue, signer, ledger, auditor, requireReady: () => undefined });
  using deadline = Deadline.after('sign', 60_000);
  assert.equal(
    (await signing.sign(items, { actor: 'test', subject: 'test', chain: [], deadline })).length,
    items.length,
  );
  return costs;
}

const itemOf = (bytes: number): SignItem => ({ kids: [NAME], message: new Uint8Array(bytes) });

test('a long message counts as more work than a short one', async () => {
  const [short_us] = await costsOf([itemOf(32)]);
  const [long_us] = await costsOf([itemOf(64 * 1024)]);
  assert.ok(long_us! > 3 * short_us!, `${short_us} and ${long_us}`);
});

test('a batch of long messages has more pieces than one of short messages', async () => {
  const batch = async (bytes: number): Promise<number> =>
    (await costsOf(Array.from({ length: 16 }, () => itemOf(bytes)))).length;
  assert.ok((await batch(64 * 1024)) > (await batch(32)));
});
