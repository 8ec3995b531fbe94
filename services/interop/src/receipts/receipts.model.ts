/**
 * One receipt per acceptance across restarts, on the real log and signer.
 *
 * A sender appends a receipt, a retry of the provider appends another one with the same id, the signer signs, and the power is
 * cut at any moment. Then each disk that the power cut can leave behind is opened: an acknowledged receipt is there, once, as it
 * was seen before; a receipt that was seen signed is signed; an append of the id writes nothing if it is there.
 */
import assert from 'node:assert/strict';
import { treeRoot } from '@ron/client/webhook-receipt';
import type { Build, World } from '@ron/explorer';
import { NEVER, touch } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { ulidBytes, type WebhookReceipt } from '@ron/proto';
import { readRecord } from './read-record.ts';
import { NO_ROW } from './receipt-index.ts';
import type { ReceiptLog } from './receipt-log.ts';
import { batchIn, receiptIn } from './receipt-records.ts';
import type { ReceiptSigner } from './receipt-signer.ts';

export interface Parts {
  readonly ReceiptLog: typeof ReceiptLog;
  readonly ReceiptSigner: typeof ReceiptSigner;
}

export interface ReceiptShape {
  /** Appends of one id, with different contents. */
  readonly appends: number;
  readonly signs: boolean;
  /** The first caller may leave while its append is under way. */
  readonly leaves?: boolean;
}

/** Power cuts at one moment leave fewer disks. */
const IMAGES_MAX = 1000;
const ID = '01JQZ3QW5T0000000000000001';

const receiptOf = (received_ms: number): WebhookReceipt => ({
  id: ID,
  provider: 'p',
  scheme: 'github',
  secret_version: 1,
  received_ms,
  b3: `b3:${'0'.repeat(64)}`,
  bytes: 1,
  topic: 'hooks.p',
});

/** A disk on which a sync takes time. */
class ModelDisk extends CrashFileSystem {
  readonly #world: World;

  constructor(world: World) {
    super();
    this.#world = world;
  }

  override async create(path: string): Promise<File> {
    const file = await super.create(path);
    const sync = async (): Promise<void> => {
      await this.#world.io('sync');
      touch(this);
      await file.sync();
    };
    return { ...file, sync };
  }
}

const openLog = (parts: Parts, fs: FileSystem, onChange: () => void): Promise<ReceiptLog> =>
  parts.ReceiptLog.open({
    dir: '/receipts',
    fs,
    bytes_max: 8 * 1024 * 1024,
    max_age_ms: 1e12,
    keepsUnsigned: true,
    isReplaced: false,
    onDamage: ({ what }) => assert.equal(what, 'torn tail'),
    onRead: () => assert.fail('a segment was unread'),
    onRemoved: () => assert.fail('a receipt was removed'),
    onChange,
    signal: NEVER,
  });

/** The answers of the service so far. */
interface Seen {
  /** The receipt that an acknowledged append has left. */
  receipt: WebhookReceipt | undefined;
  isSigned: boolean;
}

async function lookUp(log: ReceiptLog): Promise<Seen> {
  const row = log.index.find(ulidBytes(ID));
  if (row === NO_ROW) return { receipt: undefined, isSigned: false };
  const record = await readRecord(log.log, log.index.placeOf(row), 1024);
  const place = log.index.batchOf(row);
  if (place !== undefined) {
    const batch = await readRecord(log.log, place, 1024);
    const { leaves, root } = batchIn(batch!.head.id, batch!.payload, batch!.meta);
    assert.deepEqual(Buffer.from(treeRoot(leaves)), Buffer.from(root));
  }
  return { receipt: receiptIn(record!.payload), isSigned: place !== undefined };
}

/** Opens each disk that a power cut can leave behind now. */
async function checkStarts(parts: Parts, disk: CrashFileSystem, seen: Seen): Promise<void> {
  const images = disk.imagesAt(disk.operations, IMAGES_MAX, () => assert.fail('too many images'));
  for (const image of images) {
    const fs = new CrashFileSystem(image);
    const log = await openLog(parts, fs, () => undefined);
    const found = await lookUp(log);
    if (seen.receipt !== undefined) assert.deepEqual(found.receipt, seen.receipt, 'an acknowledged receipt is lost');
    assert.ok(found.isSigned || !seen.isSigned, 'a signature is lost');
    assert.ok(log.index.rows <= 1, 'an id has two receipts');
    await log.append([receiptOf(9)], NEVER);
    assert.equal(log.stored_total, found.receipt === undefined ? 1 : 0, 'a second receipt was written');
    assert.equal(log.index.unsigned, found.isSigned ? 0 : 1);
    await log[Symbol.asyncDispose]();
    const again = await openLog(parts, fs, () => undefined);
    assert.deepEqual((await lookUp(again)).receipt, found.receipt ?? receiptOf(9), 'a restart changed the receipt');
    assert.equal(again.index.rows, 1, 'a restart found two receipts');
    await again[Symbol.asyncDispose]();
  }
}

export function receiptsAgainstCrash(parts: Parts, { appends, signs, leaves = false }: ReceiptShape): Build {
  return (world) => {
    const disk = new ModelDisk(world);
    const seen: Seen = { receipt: undefined, isSigned: false };
    const stopping = new AbortController();
    let signer: ReceiptSigner | undefined;
    let log: ReceiptLog | undefined;
    const client = new AbortController();
    const append = async (opened: ReceiptLog, at: number): Promise<void> => {
      try {
        await opened.append([receiptOf(at)], at === 0 ? client.signal : NEVER);
      } catch {
        return assert.ok(at === 0 && client.signal.aborted, 'an append failed');
      }
      const { receipt } = await lookUp(opened);
      touch(disk);
      assert.ok(receipt !== undefined, 'an acknowledged receipt is not in the log');
      assert.ok(seen.receipt === undefined || seen.receipt.received_ms === receipt.received_ms, 'a receipt changed');
      seen.receipt = receipt;
    };
    world.task('service', async () => {
      const opened = await openLog(parts, disk, () => {
        signer?.notify();
        if (opened.signed_total === 0) return;
        seen.isSigned = true;
        stopping.abort();
      });
      log = opened;
      signer = new parts.ReceiptSigner({
        log: opened,
        signer: {
          sign: async () => {
            await world.io('kms');
            return { kid: 'k', sigs: [] };
          },
        },
        onLost: () => assert.fail('a receipt is lost'),
        onFailure: (problem) => assert.fail(problem),
      });
      await Promise.all(Array.from({ length: appends }, (_, at) => append(opened, at)));
      // Later than the appends: an idle signer would wake each minute, without end.
      if (signs) await signer.run({ stopping: stopping.signal, signal: NEVER });
    });
    if (leaves)
      world.task('client', async () => {
        await world.io('leave');
        client.abort();
      });
    world.task('power cut', async () => {
      await world.io('power');
      touch(disk);
      await checkStarts(parts, disk, { ...seen });
    });
    return {
      state: () => JSON.stringify([seen, disk.operations, log?.stored_total, log?.signed_total]),
      final: () => {
        assert.deepEqual([log!.stored_total, log!.index.rows], [1, 1], 'one acceptance has one receipt');
        assert.equal(log!.index.unsigned, signs ? 0 : 1);
      },
    };
  };
}
