import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RonError } from '@ron/kernel';
import fc from 'fast-check';
import { formatKid, nameOf, parseKid, tenantOf } from './kid.ts';

const UUID = '0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';
const GOOD = `acme/docs/ed25519/${UUID}`;

test('a kid parses into its parts', () => {
  assert.deepEqual(parseKid(`${GOOD}#v12`), {
    name: GOOD,
    tenant: 'acme',
    purpose: 'docs',
    alg: 'ed25519',
    version: 12,
  });
  assert.equal(parseKid(GOOD).version, undefined);
  assert.equal(formatKid(GOOD, 12), `${GOOD}#v12`);
});

test('ambiguous text is not a kid', () => {
  const bad = [
    '',
    'acme',
    `../docs/ed25519/${UUID}`,
    `./docs/ed25519/${UUID}`,
    `a/b/docs/ed25519/${UUID}`,
    `acme/docs/ed25519/${UUID.toUpperCase()}`,
    `acme/docs/rsa/${UUID}`,
    `acme/docs/constructor/${UUID}`,
    `acme/Docs/ed25519/${UUID}`,
    `acme//ed25519/${UUID}`,
    `${GOOD}#v0`,
    `${GOOD}#v01`,
    `${GOOD}#v1#v2`,
    `${GOOD}#v1 `,
    `${GOOD}#v1\n`,
    `${GOOD}#v-1`,
    `${GOOD}#v1e3`,
    `${GOOD}#`,
    `acme%2Fx/docs/ed25519/${UUID}`,
    `${'a'.repeat(65)}/docs/ed25519/${UUID}`,
  ];
  for (const text of bad)
    assert.throws(
      () => parseKid(text),
      (error) => error instanceof RonError && error.status === 400,
      text,
    );
});

test('any text is refused or round-trips as a kid', () => {
  const part = fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom('acme', 'docs', 'ed25519', UUID, '..', '#v1'));
  fc.assert(
    fc.property(fc.array(part, { maxLength: 6 }), fc.constantFrom('', '#v1', '#v999999', '#v'), (parts, end) => {
      const text = parts.join('/') + end;
      try {
        const { name, version, tenant } = parseKid(text);
        assert.equal(version === undefined ? name : formatKid(name, version), text);
        assert.equal(tenantOf(text), tenant);
        assert.equal(nameOf(text), name);
      } catch (error) {
        assert.ok(error instanceof RonError);
      }
    }),
  );
});
