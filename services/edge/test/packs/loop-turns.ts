/** Measures how long the event loop is held, in CPU time of this thread: other processes on the machine do not count. */
export interface LoopTurns extends Disposable {
  /** The longest turn so far, the present one included. */
  longest_ms(): Promise<number>;
}

const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const cpu_ms = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

export function watchLoopTurns(): LoopTurns {
  let longest_ms = 0;
  let isWatching = true;
  let last_ms = cpu_ms();
  const turn = (): void => {
    const now_ms = cpu_ms();
    longest_ms = Math.max(longest_ms, now_ms - last_ms);
    last_ms = now_ms;
    if (isWatching) setImmediate(turn);
  };
  setImmediate(turn);
  return {
    async longest_ms() {
      // The present turn counts once the next one has begun.
      await nextTurn();
      await nextTurn();
      return longest_ms;
    },
    [Symbol.dispose]: () => void (isWatching = false),
  };
}
