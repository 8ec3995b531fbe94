/**
 * Watches a task of a service until it ends.
 *
 * Promise: `onProgress` is told every half second how far it is. Resolves when it is done; when it failed, rejects with why.
 * The task itself goes on when nobody watches. Bound: one question at a time. Cancellation: by the signal.
 */
import type { StorageAdmin } from '@ron/client';
import { sleep } from '@ron/kernel/core';
import type { Task } from '@ron/proto';
import { CliError } from './exits.ts';

const POLL_MS = 500;

export async function followTask(
  admin: StorageAdmin,
  started: Task,
  signal: AbortSignal,
  onProgress: (task: Task) => void,
): Promise<Task> {
  let task = started;
  while (task.state === 'running') {
    onProgress(task);
    await sleep(POLL_MS, signal, 'follow');
    task = await admin.task(task.id, { signal });
  }
  if (task.state === 'done') return task;
  throw new CliError('failed', `${task.kind} ${task.state}: ${task.problem ?? 'no reason is known'}`);
}
