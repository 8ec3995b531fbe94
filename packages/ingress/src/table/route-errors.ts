/**
 * Converts a thrown value or the faults of a validator into an error of the error table.
 *
 * Contract: defined for every value, and never shows the text of a foreign error to a client. The name of an unknown field is
 * repeated only if it looks like one of ours: a secret that was entered as a name reaches no answer and no log.
 */
import { isRonError, RonError } from '@ron/kernel';

/** One fault as the validator reports it. */
export interface Fault {
  readonly instancePath?: string;
  readonly keyword?: string;
  readonly message?: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** A compiled schema. On false, `errors` holds the reasons. */
export interface Validate {
  (value: unknown): unknown;
  readonly errors?: readonly Fault[] | null;
}

const FAULTS_MAX = 10;

export function toRonError(error: unknown): RonError {
  if (isRonError(error)) return error;
  return new RonError('internal', 'a handler failed', { cause: error });
}

/** `where` is params, query or body. */
export function validationError(where: string, faults: readonly Fault[] | null | undefined): RonError {
  const errors = tellable(faults ?? [])
    .slice(0, FAULTS_MAX)
    .map(({ instancePath = '', message }) => ({ at: `${where}${instancePath}`, message }));
  const first = errors[0];
  const message = first === undefined ? `${where} is not valid` : `${first.at} ${first.message}`;
  return new RonError('validation', message, { details: { errors } });
}

/** The validator reports a fault for each allowed value, without naming it. List the allowed values once. */
function tellable(faults: readonly Fault[]): { readonly instancePath?: string; readonly message: string }[] {
  const allowed = Map.groupBy(
    faults.filter(({ params }) => params !== undefined && 'allowedValue' in params),
    ({ instancePath }) => instancePath,
  );
  return faults.flatMap((fault) => {
    const { instancePath, keyword } = fault;
    const values = allowed.get(instancePath);
    if (values === undefined) return [{ ...fault, message: faultMessage(fault) }];
    if (fault === values[0]) return [{ ...fault, message: `must be ${values.map(allowedValue).join(' or ')}` }];
    return keyword === 'anyOf' || values.includes(fault) ? [] : [{ ...fault, message: faultMessage(fault) }];
  });
}

const allowedValue = ({ params }: Fault): string => JSON.stringify(params?.['allowedValue']);

/** Shorter than most secrets, and without their digits and upper-case letters. */
const FIELD_NAME = /^[a-z][a-z_]{0,23}$/;

/** The validator reports an unknown field without its name. Add the name. */
function faultMessage(fault: Fault): string {
  const unknown = fault.params?.['additionalProperty'];
  if (typeof unknown === 'string') return `has an unknown field${FIELD_NAME.test(unknown) ? `: ${unknown}` : ''}`;
  return fault.message ?? 'is not valid';
}
