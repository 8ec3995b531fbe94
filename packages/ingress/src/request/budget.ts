/**
 * The time budget of a request: that of the route, or less if the client asks for less.
 *
 * Contract: `Request-Timeout` (seconds, decimals allowed) and `Deadline` (Unix ms) can only shorten it; a malformed
 * header is ignored. The result is between 0 and `budget_ms`. A deadline in the past gives 0. Never throws.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { sched } from '@ron/kernel';
import { headerText } from '../guards/header-text.ts';

/** The budget of a request whose route allows `budget_ms`. */
export function requestBudget_ms(req: IncomingMessage, budget_ms: number): number {
  const timeout = headerText(req, 'request-timeout');
  const deadline = headerText(req, 'deadline');
  if (timeout === undefined && deadline === undefined) return budget_ms;
  return budgetFrom({ 'request-timeout': timeout, deadline }, budget_ms, sched.wall_ms());
}

export function budgetFrom(headers: IncomingHttpHeaders, budget_ms: number, wall_ms: number): number {
  const timeout = headers['request-timeout'];
  const deadline = headers['deadline'];
  if (timeout === undefined && deadline === undefined) return budget_ms;
  let shortest_ms = budget_ms;
  if (typeof timeout === 'string' && /^\d{1,12}(?:\.\d{1,9})?$/.test(timeout))
    shortest_ms = Math.min(shortest_ms, Number(timeout) * 1000);
  if (typeof deadline === 'string' && /^\d{1,16}$/.test(deadline))
    shortest_ms = Math.min(shortest_ms, Math.max(0, Number(deadline) - wall_ms));
  return shortest_ms;
}
