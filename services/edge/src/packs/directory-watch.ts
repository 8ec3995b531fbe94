/**
 * Reports changes of a directory.
 *
 * Contract: `onChange` is called once, `QUIET_MS` after the first of several changes. A directory that cannot be watched is not
 * reported: the caller looks again from time to time anyway.
 * Bound: one timer.
 */
import { watch, type FSWatcher } from 'node:fs';
import { sched, type Timer } from '@ron/kernel';

const QUIET_MS = 100;

export function watchDirectory(path: string, onChange: () => void): Disposable {
  let timer: Timer | undefined;
  const changed = (): void => {
    timer ??= sched.timer(
      QUIET_MS,
      () => {
        timer = undefined;
        onChange();
      },
      'packs.watch',
    );
  };
  const watcher = openWatcher(path, changed);
  return {
    [Symbol.dispose]() {
      timer?.cancel();
      watcher?.close();
    },
  };
}

function openWatcher(path: string, changed: () => void): FSWatcher | undefined {
  try {
    const watcher = watch(path, { persistent: false }, changed);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
