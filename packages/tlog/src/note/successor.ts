/**
 * The name under which a log begins again with the same keys: `<origin>/<16 hex digits>`.
 *
 * Contract: the digits are random. A successor therefore never has the name of an earlier one, even if all records of the
 * earlier names were lost, as after a restore of all data: two logs with one name and key are equivocation.
 */
import { sched } from '@ron/kernel';

const RANDOM_BYTES = 8;
const RANDOM = /^[0-9a-f]{16}$/;

export function successorOf(origin: string): string {
  return `${origin}/${Buffer.from(sched.randomBytes(RANDOM_BYTES)).toString('hex')}`;
}

export function isSuccessor(former: string, origin: string): boolean {
  return origin.startsWith(`${former}/`) && RANDOM.test(origin.slice(former.length + 1));
}
