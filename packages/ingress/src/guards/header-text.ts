/**
 * One header of a request by name, from its raw lines.
 *
 * Contract: finds the name in any case; the values of repeated lines are joined by a comma and a space. Unlike
 * `req.headers`, which Node builds as a whole at the first access, this costs one pass and allocates nothing for a header
 * that occurs at most once.
 * Bound: the header lines of the request.
 *
 *   headerText(req, 'content-type')   // 'application/json', or undefined
 */
import type { IncomingMessage } from 'node:http';

/** `lower`: the name in lower case. */
export function headerText(req: Pick<IncomingMessage, 'rawHeaders'>, lower: string): string | undefined {
  const raw = req.rawHeaders;
  let text: string | undefined;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!;
    if (name.length !== lower.length || (name !== lower && name.toLowerCase() !== lower)) continue;
    text = text === undefined ? raw[i + 1]! : `${text}, ${raw[i + 1]!}`;
  }
  return text;
}
