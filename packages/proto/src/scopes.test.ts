import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { isScope, SCOPE_NAMES, SCOPES, scopeService, scopesOf } from './scopes.ts';
import { BASE_PORT_DEFAULT, defaultPort, isService, SERVICES } from './services.ts';

test('every scope is the name of a service and one word', () => {
  for (const scope of SCOPE_NAMES) {
    assert.match(scope, /^[a-z]+:[a-z]+$/);
    assert.ok(isService(scopeService(scope)), scope);
    assert.ok(SCOPES[scope].length > 0);
  }
});

test('every service has scopes, and together they are all scopes, each once', () => {
  assert.deepEqual(SERVICES.flatMap((service) => scopesOf(service)).toSorted(), SCOPE_NAMES.toSorted());
  for (const service of SERVICES) assert.ok(scopesOf(service).length > 0, service);
});

test('only members of the lists are accepted', () => {
  const near = fc.oneof(
    fc.anything(),
    fc.constantFrom(
      'constructor',
      '__proto__',
      'storage',
      'storage:',
      'storage:*',
      'storage:GET',
      ' storage:get',
      'kms:get',
    ),
  );
  fc.assert(
    fc.property(near, (value) => {
      assert.equal(isScope(value), (SCOPE_NAMES as readonly unknown[]).includes(value));
      assert.equal(isService(value), (SERVICES as readonly unknown[]).includes(value));
    }),
  );
});

test('no two services share a port, nor the console with one', () => {
  const ports = SERVICES.map((service) => defaultPort(service));
  assert.equal(new Set([BASE_PORT_DEFAULT, ...ports]).size, SERVICES.length + 1);
  assert.equal(defaultPort('storage'), 7101);
  assert.equal(defaultPort('passport', 9000), 9007);
});
