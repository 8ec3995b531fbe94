/**
 * The crash points of a model: each disk that a crash could leave behind at any moment of any schedule, with the answers that
 * the clients had then. A mailbox is started on each of them after the exploration.
 *
 * The disk and the answers do not change between two notes, so these are all crashes. Equal ones are kept once.
 */
import { createHash } from 'node:crypto';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem } from '@ron/log/testing';
import { Mailbox } from '../../mailbox.ts';
import type { Files, ModelDisk } from './model-disk.ts';
import { openOn, type Parts } from './model-mailbox.ts';

/** `kill`: all writes are there. `power cut`: any of those that no sync covers may be missing. */
export type Crash = 'kill' | 'power cut';

interface CrashPoint<A> {
  readonly crash: Crash;
  readonly files: Files;
  readonly answers: A;
  readonly now_ms: number;
}

/** The date on which the clock of the explorer starts. */
const START_MS = Date.UTC(2026, 0, 1);
const REBOOT_MS = 1000;

export class CrashPoints<A> {
  readonly #points = new Map<string, CrashPoint<A>>();

  get size(): number {
    return this.#points.size;
  }

  /** Call it after each answer and each change of the disk. */
  note(disk: ModelDisk, answers: A, now_ms: number): void {
    this.#note('kill', disk.files(), answers, now_ms);
    for (const files of disk.images()) this.#note('power cut', files, answers, now_ms);
  }

  #note(crash: Crash, files: Files, answers: A, now_ms: number): void {
    const hash = createHash('sha256').update(JSON.stringify([crash, answers, now_ms, [...files.keys()]]));
    for (const bytes of files.values()) hash.update(bytes);
    const key = hash.digest('base64');
    if (this.#points.has(key)) return;
    this.#points.set(key, { crash, files, answers: structuredClone(answers), now_ms });
  }

  /** Starts a mailbox after each crash. */
  async check(parts: Parts, check: (mailbox: Mailbox, answers: A, crash: Crash) => void): Promise<void> {
    for (const { crash, files, answers, now_ms } of this.#points.values()) {
      await clockAt(now_ms + REBOOT_MS).during(async () => {
        const mailbox = await openOn(parts, new CrashFileSystem(files));
        check(mailbox, answers, crash);
        await mailbox.close();
      });
    }
  }
}

/** The files of a mailbox after `use`, shortly before the clock of the explorer starts. */
export async function filesOf(use: (mailbox: Mailbox) => Promise<void>): Promise<Files> {
  const disk = new CrashFileSystem();
  await clockAt(-REBOOT_MS).during(async () => {
    const mailbox = await openOn({ Mailbox }, disk);
    await use(mailbox);
    await mailbox.close();
  });
  return disk.files();
}

const clockAt = (now_ms: number): VirtualSched => new VirtualSched(START_MS - new VirtualSched().wall_ms() + now_ms);
