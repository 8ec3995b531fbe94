/** Random caveats and requests with a fair chance to match. */
import { SCOPE_NAMES, SERVICES } from '@ron/proto';
import * as fc from 'fast-check';
import { parseNetwork } from '../src/index.ts';
import type { Caveat, Network } from '../src/index.ts';

export const digit = fc.constantFrom(...'0123456789abcdef'.split(''));
export const hex = (minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.array(digit, { minLength, maxLength }).map((digits) => digits.join(''));

const network = fc
  .constantFrom('127.0.0.0/8', '127.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '::/0', '::1', '2001:db8::/32')
  .map((text): Network => parseNetwork(text)!);

export const arbitraryCaveat: fc.Arbitrary<Caveat> = fc
  .oneof(
    fc.record({ key: fc.constant('audience' as const), service: fc.constantFrom(...SERVICES) }),
    fc.record({
      key: fc.constant('scopes' as const),
      scopes: fc.uniqueArray(fc.constantFrom(...SCOPE_NAMES), { minLength: 1, maxLength: 6 }),
    }),
    fc.record({ key: fc.constant('expires' as const), at_ms: fc.nat(2 ** 31).map((seconds) => seconds * 1000) }),
    fc.record({ key: fc.constant('address' as const), prefix: hex(0, 64).map((digits) => `b3:${digits}`) }),
    fc.record({
      key: fc.constantFrom('name' as const, 'label' as const),
      prefix: fc.constantFrom('a', 'a/b', 'photos/', 'é/ü', 'two words'),
    }),
    fc.record({ key: fc.constant('tenant' as const), tenant: fc.constantFrom('acme', 'globex', 'A.b_c-9') }),
    fc.record({ key: fc.constant('bytes' as const), body_bytes_max: fc.oneof(fc.nat(200), fc.maxSafeNat()) }),
    fc.record({
      key: fc.constant('rate' as const),
      count: fc.integer({ min: 1, max: 1_000_000 }),
      period_ms: fc.constantFrom(1000 as const, 60_000 as const),
    }),
    fc.record({
      key: fc.constant('ip' as const),
      networks: fc.uniqueArray(network, { minLength: 1, maxLength: 3, selector: (net) => net.text }),
    }),
    fc.record({
      key: fc.constant('body' as const),
      algorithm: fc.constantFrom('sha256' as const, 'b3' as const),
      hex: hex(64, 64),
    }),
  )
  // fast-check creates some records without a prototype, which compare as different.
  .map((caveat) => ({ ...caveat }));
