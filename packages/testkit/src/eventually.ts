/** Waits on a condition instead of on time. */

/** Long enough for a busy machine. It is spent only by a test that fails. */
const TIMEOUT_MS = 60_000;
const POLL_MS = 5;

/** Polls until `holds` returns true. Rejects with `what` after the timeout. */
export async function eventually(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeout_ms = TIMEOUT_MS,
): Promise<void> {
  const until_ms = performance.now() + timeout_ms;
  while (!(await holds())) {
    if (performance.now() > until_ms) throw new Error(`timed out waiting for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
