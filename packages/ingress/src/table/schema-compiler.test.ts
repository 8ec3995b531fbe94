import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { RonError } from '@ron/kernel';
import { Type } from './schema.ts';
import { createIngress } from '../index.ts';
import { SchemaCompiler } from './schema-compiler.ts';

const Item = Type.Object(
  { name: Type.String({ maxLength: 4 }), count: Type.Integer({ default: 7 }) },
  { additionalProperties: false },
);

const loaded = (name: string): boolean =>
  Object.keys(createRequire(import.meta.url).cache).some((path) => path.includes(`/node_modules/${name}/`));

test('the compilers are loaded by the first request that needs them, not by the import', () => {
  const parts = new SchemaCompiler().parts({ body: Item, response: { 200: Item } });
  assert.equal(typeof createIngress, 'function', 'the whole package is imported');
  assert.deepEqual([loaded('ajv'), loaded('fast-json-stringify')], [false, false]);
  assert.equal(parts.body?.({ name: 'a', count: 1 }), true);
  assert.deepEqual([loaded('ajv'), loaded('fast-json-stringify')], [true, false]);
  assert.equal(parts.serialize(200, { name: 'a', count: 1 }), '{"name":"a","count":1}');
  assert.ok(loaded('fast-json-stringify'));
});

test('nothing is coerced or removed, defaults are filled in, and a schema is compiled once', () => {
  const parts = new SchemaCompiler().parts({ body: Item });
  const value = { name: 'a' };
  assert.equal(parts.body?.(value), true);
  assert.deepEqual(value, { name: 'a', count: 7 });
  for (const wrong of [{ name: 1 }, { name: 'a', count: '1' }, { name: 'a', more: 1 }, { name: 'abcde' }, null])
    assert.equal(parts.body(wrong), false, JSON.stringify(wrong));
  parts.body({ name: 1, count: '1', more: 1 });
  assert.equal(parts.body.errors?.length, 1, 'validation stops at the first fault');
  assert.equal(parts.body, parts.body);
  assert.equal(parts.params, undefined);
});

test('a body that is not JSON, or would reach a prototype, is a bad request', () => {
  const parts = new SchemaCompiler().parts(undefined);
  assert.deepEqual(parts.parseJson('{"a":[1]}'), { a: [1] });
  for (const text of [
    '',
    '{',
    '{"__proto__":{"a":1}}',
    '{"a":{"\\u005f_proto__":1}}',
    '{"constructor":{"prototype":{"a":1}}}',
  ])
    assert.throws(
      () => parts.parseJson(text),
      (error) => error instanceof RonError && error.code === 'bad_request',
      text,
    );
});

test('a status without a schema is plain JSON', () => {
  const parts = new SchemaCompiler().parts({ response: { 200: Item } });
  assert.equal(parts.serialize(201, { any: ['thing'] }), '{"any":["thing"]}');
});
