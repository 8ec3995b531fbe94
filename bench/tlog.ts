/**
 * The transparency log at a million entries. `node bench/tlog.ts [--quick]`
 *
 * Bars: a proof under 1 ms, opening with the start check under 2 s (even with a tail that no checkpoint covers), memory
 * that does not grow with the log. Times are wall-clock times of the caller, with syncs to the disk of the project.
 */
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { rmSync } from 'node:fs';
import { dirSource, noteSigner, TransparencyLog, verifyLog, type NoteSigner } from '@ron/tlog';
import { liveHeap_bytes, measure, nsEachAsync, quick, report, scratchDir, type Case } from './lib.ts';

const ENTRIES = quick ? 200_000 : 1_000_000;
const TAIL = 20_000;
const ENTRY_BYTES = 350;
const BATCH = 512;
const PROOFS = 400;
const REPEATS = quick ? 3 : 5;
const ORIGIN = 'example.com/bench';

const { signal } = new AbortController();
const dir = scratchDir('tlog');

function signerOf(): NoteSigner {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const spki = publicKey.export({ format: 'der', type: 'spki' });
  return noteSigner({ name: ORIGIN, type: 0x01, spki, sign: async (message) => sign(null, message, privateKey) });
}

const signer = signerOf();
const open = (): Promise<TransparencyLog> => TransparencyLog.open({ dir, origin: ORIGIN, signers: [signer], signal });

async function elapsed_ms(run: () => Promise<unknown>): Promise<number> {
  const start_ms = performance.now();
  await run();
  return performance.now() - start_ms;
}

function batchOf(count: number): Uint8Array[] {
  const bytes = randomBytes(count * ENTRY_BYTES);
  return Array.from({ length: count }, (_, index) => bytes.subarray(index * ENTRY_BYTES, (index + 1) * ENTRY_BYTES));
}

async function fill(log: TransparencyLog, to: number): Promise<void> {
  while (log.size < to) await log.append(batchOf(Math.min(BATCH, to - log.size)), signal);
}

async function proofs(log: TransparencyLog): Promise<void> {
  for (let count = 0; count < PROOFS; count++) await log.proof(Math.floor(Math.random() * log.checkpoint!.size));
}

try {
  let log = await open();
  await fill(log, ENTRIES / 2);
  await log.writeCheckpoint(signal);
  const live_half_bytes = live_bytes();
  const fill_ms = await elapsed_ms(() => fill(log, ENTRIES));
  await log.writeCheckpoint(signal);
  const growth_bytes = live_bytes() - live_half_bytes;
  const reopen = async (): Promise<void> => {
    await log.close();
    log = await open();
  };
  const bare: Case[] = [
    {
      name: `proof of any of ${ENTRIES} entries`,
      unit: 'ms',
      bar: 1,
      run: async () => (await elapsed_ms(() => proofs(log))) / PROOFS,
    },
    { name: 'the same, CPU', unit: 'ms', run: async () => (await nsEachAsync(PROOFS, () => proofs(log))) / 1e6 },
    { name: `open and start check, ${ENTRIES} entries`, unit: 'ms', bar: 2000, run: () => elapsed_ms(reopen) },
    {
      name: `append of ${BATCH} entries of ${ENTRY_BYTES} bytes, one sync`,
      unit: 'ms',
      run: () => elapsed_ms(() => log.append(batchOf(BATCH), signal)),
    },
    { name: 'checkpoint, Ed25519', unit: 'ms', run: () => elapsed_ms(() => log.writeCheckpoint(signal)) },
  ];
  const rows = await measure(bare, REPEATS);
  await fill(log, log.size + TAIL);
  const tail: Case = {
    name: `open with ${TAIL} entries after the checkpoint`,
    unit: 'ms',
    bar: 2000,
    run: () => elapsed_ms(reopen),
  };
  rows.push(...(await measure([tail], REPEATS)));
  await log.writeCheckpoint(signal);
  const audit: Case = {
    name: `full audit, ${log.size} entries`,
    unit: 'ms',
    run: () => elapsed_ms(fullAudit),
  };
  rows.push(...(await measure([audit], quick ? 1 : 2)));
  const growth: Case = {
    name: `live memory after ${ENTRIES} entries, compared with ${ENTRIES / 2}`,
    unit: 'bytes',
    bar: 256 * 1024,
    run: () => growth_bytes,
  };
  const rate: Case = {
    name: `append rate in batches of ${BATCH}`,
    unit: 'us/entry',
    note: `${Math.round(ENTRIES / 2 / (fill_ms / 1000))} entries/s`,
    run: () => (fill_ms * 1000) / (ENTRIES / 2),
  };
  rows.push(...(await measure([growth, rate], 1)));
  await log.close();
  report('tlog', 'transparency log', rows);
} finally {
  rmSync(dir, { recursive: true, force: true });
}

/** Bytes of live objects and buffers. */
function live_bytes(): number {
  return liveHeap_bytes() + process.memoryUsage().arrayBuffers;
}

async function fullAudit(): Promise<void> {
  await using source = await dirSource(dir);
  const found = await verifyLog(source, [signer.vkey], { signal });
  if (!found.ok) throw new Error(`${found.damage.where}: ${found.damage.what}`);
}
