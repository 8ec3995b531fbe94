import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Type, type Static } from './schema.ts';

test('a schema is plain JSON Schema: properties are required unless they are optional', () => {
  const Named = Type.Object(
    { name: Type.String({ maxLength: 8 }), note: Type.Optional(Type.Integer()) },
    { additionalProperties: false },
  );
  assert.deepEqual(Named, {
    type: 'object',
    required: ['name'],
    properties: { name: { type: 'string', maxLength: 8 }, note: { type: 'integer' } },
    additionalProperties: false,
  });
  const value: Static<typeof Named> = { name: 'a' };
  // @ts-expect-error a note is a number
  value.note = 'b';
  assert.ok(value);
});

test('an object without required properties has no `required` keyword, and the marked schema stays plain', () => {
  const count = Type.Integer();
  assert.deepEqual(Type.Object({ count: Type.Optional(count) }), {
    type: 'object',
    properties: { count: { type: 'integer' } },
  });
  assert.deepEqual(Type.Object({ count }).required, ['count'], 'marking copies the schema');
});

test('unions, literals, arrays and records have the type of their values', () => {
  const Mode = Type.Union([Type.Literal('or'), Type.Literal('and'), Type.Null()]);
  const mode: Static<typeof Mode> = 'or';
  assert.deepEqual(Mode.anyOf, [{ type: 'string', const: 'or' }, { type: 'string', const: 'and' }, { type: 'null' }]);
  const Lists = Type.Record(Type.Array(Type.Number(), { maxItems: 2 }));
  const lists: Static<typeof Lists> = { a: [1] };
  assert.deepEqual(Lists, {
    type: 'object',
    additionalProperties: { type: 'array', items: { type: 'number' }, maxItems: 2 },
  });
  assert.ok(mode && lists);
});
