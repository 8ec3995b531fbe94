/**
 * Polls a task of a service until it ends.
 *
 * Contract: calls `onProgress` every `POLL_MS`. Resolves when the task is done; rejects with its problem when it failed.
 * Bound: one request at a time. Cancellation: the signal stops the polling; the task itself continues.
 */
import { sleep } from '@ron/kernel/core';
import type { Task } from '@ron/proto';
import { CliError } from './exits.ts';

const POLL_MS = 500;

/** A client of the service that runs the task. */
export interface TaskSource<K extends string> {
  task(id: string, init: { readonly signal: AbortSignal }): Promise<Task<K>>;
}

export async function followTask<K extends string>(
  source: TaskSource<K>,
  started: Task<K>,
  signal: AbortSignal,
  onProgress: (task: Task<K>) => void,
): Promise<Task<K>> {
  let task = started;
  while (task.state === 'running') {
    onProgress(task);
    await sleep(POLL_MS, signal, 'follow');
    task = await source.task(task.id, { signal });
  }
  if (task.state === 'done') return task;
  throw new CliError('failed', `${task.kind} ${task.state}: ${task.problem ?? 'unknown reason'}`);
}
