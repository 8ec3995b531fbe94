/**
 * Sends a refusal after a delay. It is in flight on its connection: until it is sent, later requests of the connection
 * wait.
 *
 * Contract: `answer` is called once, after `wait_ms`, and never for a client that has left. A broken body changes
 * nothing, because the request is refused anyway.
 * Bound: one timer, one entry at the connection.
 * Cancellation: the end of the connection.
 *
 *   refuseLater(req, connection, 200, () => refuse(req, res, error));
 */
import type { IncomingMessage } from 'node:http';
import { sched } from '@ron/kernel';
import type { Connection, InflightRequest } from '../connection/connection.ts';

export function refuseLater(req: IncomingMessage, connection: Connection, wait_ms: number, answer: () => void): void {
  const timer = sched.timer(wait_ms, () => onDue(), 'ingress-refusal');
  const flight: InflightRequest = {
    connectionLost: () => timer.cancel(),
    bodyOverdue: () => false,
    wantsBytes: () => false,
    bodyBroken: () => !req.complete,
    clientStalled: () => undefined,
    readStalled: () => undefined,
  };
  const onDue = (): void => {
    answer();
    connection.remove(flight);
  };
  connection.add(flight);
}
