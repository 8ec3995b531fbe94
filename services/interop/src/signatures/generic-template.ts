/**
 * Templates of the scheme `generic`: their check when a provider is added, and their compiled form.
 *
 * Contract: an accepted template gives the bytes of two different (time, id, body) never the same value, for fields that the
 * scheme accepts: fields are separated by literals, a literal after a field starts with a character that the field cannot
 * hold, and the only `{body}` is at the end.
 * Bound: `TEMPLATE_CHARS_MAX` characters; the compiled form is kept with its descriptor.
 *
 *     requireGeneric({ template: '{timestamp}.{body}', signature_header: 'X-Sign', timestamp_header: 'X-Time', ... });
 */
import { assert, RonError } from '@ron/kernel';
import type { GenericScheme } from '@ron/proto';

type TemplateField = 'timestamp' | 'id';

export interface Template {
  /** Literals and fields before the body, in order. */
  readonly parts: readonly ({ readonly literal: string } | { readonly field: TemplateField })[];
  /** Header names in lower case. */
  readonly signature_header: string;
  readonly timestamp_header: string | undefined;
  readonly id_header: string | undefined;
  /** The character that ends `{id}`; undefined if the template has none, so that the id is unsigned. */
  readonly id_end: string | undefined;
}

const TEMPLATE_CHARS_MAX = 256;
const PREFIX_CHARS_MAX = 64;
/** Printable ASCII and the line ends that some providers put between fields. */
const LITERALS = /^[\x20-\x7e\t\r\n]*$/;
const PRINTABLE = /^[\x20-\x7e]*$/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/;
const FIELD = /\{(timestamp|id|body)\}/;
const ALPHANUMERIC = /^[0-9A-Za-z]/;

const compiled = new WeakMap<GenericScheme, Template>();

/** Throws `validation` unless every signature of the scheme fits one request only. */
export function requireGeneric(generic: GenericScheme): void {
  checkNames(generic);
  checkTemplate(generic.template);
  const hasTime = generic.template.includes('{timestamp}');
  const hasId = generic.template.includes('{id}');
  if (hasTime && generic.timestamp_header === undefined)
    refuse('generic.timestamp_header is required, because the template has {timestamp}');
  if (!hasTime && generic.timestamp_header !== undefined)
    refuse('generic.timestamp_header is not signed: add {timestamp} to the template, or remove the header');
  if (hasId && generic.id_header === undefined) refuse('generic.id_header is required, because the template has {id}');
}

export function compileTemplate(generic: GenericScheme): Template {
  const known = compiled.get(generic);
  if (known !== undefined) return known;
  const template = compile(generic);
  compiled.set(generic, template);
  return template;
}

/** The signed text before the body. */
export function fillTemplate(template: Template, fields: Readonly<Record<TemplateField, string | undefined>>): string {
  return template.parts.map((part) => ('literal' in part ? part.literal : (fields[part.field] ?? ''))).join('');
}

function compile(generic: GenericScheme): Template {
  // Capturing groups of a split pattern are part of its result: literals and names of fields alternate.
  const pieces = generic.template.split(FIELD);
  assert(pieces.at(-1) === '' && pieces.at(-2) === 'body', 'the template was checked');
  const parts: Template['parts'][number][] = [];
  for (const [at, piece] of pieces.slice(0, -2).entries()) {
    if (at % 2 === 1) parts.push({ field: piece as TemplateField });
    else if (piece !== '') parts.push({ literal: piece });
  }
  const id_at = pieces.indexOf('id');
  return {
    parts,
    signature_header: generic.signature_header.toLowerCase(),
    timestamp_header: generic.timestamp_header?.toLowerCase(),
    id_header: generic.id_header?.toLowerCase(),
    id_end: id_at < 0 ? undefined : pieces[id_at + 1]?.[0],
  };
}

function checkTemplate(template: string): void {
  if (template.length > TEMPLATE_CHARS_MAX) refuse(`generic.template has more than ${TEMPLATE_CHARS_MAX} characters`);
  if (!LITERALS.test(template))
    refuse('generic.template holds characters other than printable ASCII, tab and line ends');
  const pieces = template.split(FIELD);
  const literals = pieces.filter((_, at) => at % 2 === 0);
  const fields = pieces.filter((_, at) => at % 2 === 1);
  if (literals.some((literal) => /[{}]/.test(literal)))
    refuse('generic.template has a field other than {timestamp}, {id} and {body}');
  if (fields.at(-1) !== 'body' || literals.at(-1) !== '') refuse('generic.template must end in {body}');
  if (new Set(fields).size !== fields.length) refuse('generic.template has a field twice');
  for (const literal of literals.slice(1, -1)) {
    if (literal === '') refuse('generic.template needs a literal between fields, such as {timestamp}.{body}');
    if (ALPHANUMERIC.test(literal))
      refuse(
        'generic.template: the literal after a field must not start with a letter or digit, which the field may hold',
      );
  }
}

function checkNames({
  signature_header,
  timestamp_header,
  id_header,
  prefix = '',
  encoding,
  algorithm,
}: GenericScheme): void {
  const names = [signature_header, timestamp_header, id_header].filter((name) => name !== undefined);
  for (const name of names) {
    if (!HEADER_NAME.test(name)) refuse('generic: a header name is empty, longer than 64 characters or not a token');
  }
  if (new Set(names.map((name) => name.toLowerCase())).size !== names.length)
    refuse('generic: signature, time and id need headers of their own');
  if (prefix.length > PREFIX_CHARS_MAX || !PRINTABLE.test(prefix))
    refuse(`generic.prefix is longer than ${PREFIX_CHARS_MAX} characters or not printable ASCII`);
  if (encoding !== 'hex' && encoding !== 'base64') refuse('generic.encoding must be hex or base64');
  if (algorithm !== 'sha256' && algorithm !== 'sha512') refuse('generic.algorithm must be sha256 or sha512');
}

function refuse(message: string): never {
  throw new RonError('validation', message);
}
