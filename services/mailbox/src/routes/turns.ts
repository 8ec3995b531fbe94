/**
 * The share of each turn of the event loop that requests may use, in units of a small message. Requests that arrive together,
 * or wait for the same sync, are executed in several turns.
 */
import { TurnBudget } from '@ron/kernel';

/** About 1 ms. */
const UNITS_MAX = 128;
/** Payload bytes that take as long to hash or to copy as a small message. */
const UNIT_BYTES = 4096;

export const newTurns = (): TurnBudget => new TurnBudget('routes', { units_max: UNITS_MAX });

export const unitsOf = (messages: readonly { readonly payload: Uint8Array }[]): number =>
  messages.reduce((units, { payload }) => units + 1 + Math.floor(payload.length / UNIT_BYTES), 0);
