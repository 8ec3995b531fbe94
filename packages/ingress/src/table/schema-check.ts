/**
 * Checks values that arrive within a body of another format by the same schemas as JSON bodies.
 *
 * Contract: the returned function throws `validation` with the first fault, as for a JSON body; `where` names the value in the
 * message. The schema is compiled at the first call.
 *
 *   const checkHead = schemaCheck(HeadSchema);
 *   checkHead(head, 'messages/3');
 */
import { validationError, type Validate } from './route-errors.ts';
import { SchemaCompiler } from './schema-compiler.ts';
import type { JsonSchema } from './schema.ts';

/** One compiler for all: loading it costs more than a schema. */
const compiler = new SchemaCompiler();

export function schemaCheck<T>(schema: JsonSchema<T>): (value: unknown, where: string) => T {
  let validate: Validate | undefined;
  return (value, where) => {
    validate ??= compiler.validator(schema);
    if (!validate(value)) throw validationError(where, validate.errors);
    return value as T;
  };
}
