/** A log whose lines a test can read. */
import { createLog, type Log } from '@ron/telemetry';

export interface CapturedLog {
  readonly log: Log;
  /** The lines so far. */
  readonly lines: string[];
}

export function captureLog(service: string, level: Parameters<typeof createLog>[0]['level'] = 'debug'): CapturedLog {
  const lines: string[] = [];
  return { log: createLog({ service, level, sink: { write: (line) => void lines.push(line) } }), lines };
}
