/** The receipt log and its signer against a power cut at every moment of every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds, assertHoldsWithin, mutant } from '@ron/explorer';
import { ReceiptLog } from './receipt-log.ts';
import { ReceiptSigner } from './receipt-signer.ts';
import { receiptsAgainstCrash, type Parts, type ReceiptShape } from './receipts.model.ts';

/** The clients and the signer have too many schedules without them. */
const BOUNDS = { lags: 0, delayed: false, turn_max: 1, preemptions: 2 } as const;

const SHAPES: readonly ReceiptShape[] = [
  { appends: 2, signs: false },
  { appends: 2, signs: false, leaves: true },
  { appends: 1, signs: true },
];

for (const shape of SHAPES) {
  const name = `${shape.appends} appends of an id${shape.signs ? ', signed' : ''}${shape.leaves ? ', a caller leaves' : ''}`;
  test(`[interop I-2] [interop I-5] ${name}, and a power cut: one receipt`, async (t) => {
    const model = receiptsAgainstCrash({ ReceiptLog, ReceiptSigner }, shape);
    if (shape.leaves || shape.signs) await assertHoldsWithin(t, model, { name, ...BOUNDS });
    else t.diagnostic(`${(await assertHolds(model, { name })).schedules} schedules`);
  });
}

const LOG = new URL('./receipt-log.ts', import.meta.url).href;

interface Bug {
  readonly bug: string;
  readonly find: string;
  readonly replace: string;
  readonly shape: ReceiptShape;
  readonly caught: RegExp;
}

const BUGS: readonly Bug[] = [
  {
    bug: 'a retry is answered while the first append waits for its sync',
    find: 'return this.index.find(ulidBytes(id)) !== NO_ROW;',
    replace: 'return this.index.find(ulidBytes(id)) !== NO_ROW || this.#appending.has(id);',
    shape: { appends: 2, signs: false },
    caught: /an acknowledged receipt is not in the log/,
  },
  {
    bug: 'a start forgets signed batches',
    find: 'this.#applyBatch(payload, place);',
    replace: 'if (this.#log !== undefined) this.#applyBatch(payload, place);',
    shape: { appends: 1, signs: true },
    caught: /a signature is lost/,
  },
];

for (const { bug, find, replace, shape, caught } of BUGS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<Pick<Parts, 'ReceiptLog'>>(LOG, find, replace);
    const options = shape.leaves || shape.signs ? BOUNDS : {};
    await assertCaught(receiptsAgainstCrash({ ...broken, ReceiptSigner }, shape), options, caught);
  });
}
