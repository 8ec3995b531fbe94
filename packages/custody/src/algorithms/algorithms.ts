/**
 * The one list of algorithms: what each can do and what it is made of. What is not here does not exist.
 */

export type Use = 'sign' | 'wrap' | 'derive';

export interface AlgorithmRow {
  /** What keys of it are for. A key does one thing only. */
  readonly use: Use;
  /** The signatures that one sign makes, in this order. Empty when it does not sign. */
  readonly signs: readonly SigningAlg[];
  readonly post_quantum: boolean;
  /** CPU time of one use in software, and of one check, for a short message: see `signCost_us`. */
  readonly use_us: number;
  readonly verify_us: number;
  /** One sentence for the reader of a key list. */
  readonly what: string;
}

/** Algorithms of single signatures: what `verifyWith` checks. */
export type SigningAlg = 'ed25519' | 'ml-dsa-44' | 'ml-dsa-65' | 'ml-dsa-87';

export type Alg = SigningAlg | 'hybrid' | 'x-wing' | 'aes-256-gcm' | 'hmac-sha256';

type Costs = readonly [use_us: number, verify_us: number];

const signing = (alg: SigningAlg, post_quantum: boolean, [use_us, verify_us]: Costs, what: string): AlgorithmRow => ({
  use: 'sign',
  signs: [alg],
  post_quantum,
  use_us,
  verify_us,
  what,
});

export const ALGORITHMS: Readonly<Record<Alg, AlgorithmRow>> = {
  ed25519: signing('ed25519', false, [40, 120], 'signatures of RFC 8032'),
  'ml-dsa-44': signing('ml-dsa-44', true, [550, 120], 'signatures of FIPS 204, category 2'),
  'ml-dsa-65': signing('ml-dsa-65', true, [900, 170], 'signatures of FIPS 204, category 3'),
  'ml-dsa-87': signing('ml-dsa-87', true, [1100, 260], 'signatures of FIPS 204, category 5'),
  hybrid: {
    use: 'sign',
    signs: ['ed25519', 'ml-dsa-65'],
    post_quantum: true,
    use_us: 940,
    verify_us: 290,
    what: 'an Ed25519 and an ML-DSA-65 signature of the same bytes',
  },
  'x-wing': {
    use: 'wrap',
    signs: [],
    post_quantum: true,
    use_us: 200,
    verify_us: 0,
    what: 'X25519 and ML-KEM-768 in one, then AES-256-GCM: a fresh key for each wrap',
  },
  'aes-256-gcm': {
    use: 'wrap',
    signs: [],
    post_quantum: true,
    use_us: 40,
    verify_us: 0,
    what: 'authenticated encryption with counted nonces',
  },
  'hmac-sha256': {
    use: 'derive',
    signs: [],
    post_quantum: true,
    use_us: 40,
    verify_us: 0,
    what: 'secrets derived by HKDF-Expand (RFC 5869)',
  },
};

/** CPU time of hashing, for each KiB of a message and each signature over it. */
const HASH_US_PER_KIB = 4;

/** CPU time of signing a message of so many bytes in software: what sharing in fairness goes by. */
export function signCost_us(alg: Alg, message_bytes: number): number {
  const { use_us, signs } = ALGORITHMS[alg];
  return use_us + signs.length * hashCost_us(message_bytes);
}

/** As `signCost_us`, of one check. */
export function verifyCost_us(alg: SigningAlg, message_bytes: number): number {
  return ALGORITHMS[alg].verify_us + hashCost_us(message_bytes);
}

const hashCost_us = (bytes: number): number => (bytes >> 10) * HASH_US_PER_KIB;

/** Whether untrusted text names an algorithm. */
export function isAlg(text: unknown): text is Alg {
  return typeof text === 'string' && Object.hasOwn(ALGORITHMS, text);
}

export const ALGS = Object.keys(ALGORITHMS) as readonly Alg[];
