/**
 * When a set of signatures is enough.
 *
 *     or < pq_only < and        a request may ask for more than the key demands, never for less
 */
import { ALGORITHMS, type SigningAlg } from '@ron/custody';
import { RonError } from '@ron/kernel';
import type { VerifyMode } from '@ron/proto';
import type { KeyRecord } from '../keys/key-record.ts';

const STRENGTH: Readonly<Record<VerifyMode, number>> = { or: 0, pq_only: 1, and: 2 };

/** What holds for a key unless its maker says otherwise: of a hybrid key both signatures count. */
export function defaultMode(alg: KeyRecord['alg']): VerifyMode {
  return alg === 'hybrid' ? 'and' : 'or';
}

/** Refuses a mode of which no signature of such a key could ever be enough. */
export function requireMode(alg: KeyRecord['alg'], mode: VerifyMode | undefined): void {
  if (mode === undefined) return;
  const { use, post_quantum } = ALGORITHMS[alg];
  if (use !== 'sign') throw new RonError('validation', `a key of ${alg} makes no signatures: it has no verify_mode`);
  if (mode === 'pq_only' && !post_quantum) {
    throw new RonError('validation', `a key of ${alg} makes no post-quantum signature: pq_only would refuse them all`);
  }
}

/** The mode to apply; refused when the request would weaken the key's own. */
export function effectiveMode(
  record: Pick<KeyRecord, 'verify_mode' | 'name'>,
  asked: VerifyMode | undefined,
): VerifyMode {
  if (asked === undefined) return record.verify_mode;
  if (STRENGTH[asked] >= STRENGTH[record.verify_mode]) return asked;
  throw new RonError(
    'reject_policy',
    `${record.name} demands ${record.verify_mode}; a request may ask for more, ${asked} is less`,
  );
}

export interface Checked {
  readonly alg: SigningAlg;
  readonly ok: boolean;
}

/** Why the set is not enough; undefined when it is. `parts` are the signatures that the key makes. */
export function lacking(
  mode: VerifyMode,
  parts: readonly SigningAlg[],
  checked: readonly Checked[],
): string | undefined {
  const isGood = (alg: SigningAlg): boolean => checked.some((each) => each.alg === alg && each.ok);
  if (mode === 'or') return parts.some(isGood) ? undefined : 'no signature is good';
  const needed = mode === 'and' ? parts : parts.filter((alg) => ALGORITHMS[alg].post_quantum);
  if (needed.length === 0) return 'the key makes no post-quantum signature';
  const missing = needed.filter((alg) => !isGood(alg));
  return missing.length === 0 ? undefined : `no good signature of ${missing.join(' and ')}`;
}
