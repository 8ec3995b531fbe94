/** Requests of the interop benchmark, built before the clock starts, so that the generator only writes them. */
import { createHmac, randomBytes } from 'node:crypto';

/** Requests of one kind. Each has a body of its own. */
export type What =
  | {
      readonly kind: 'webhook' | 'forged';
      readonly provider: string;
      readonly secret: string;
      readonly bytes: number;
    }
  | { readonly kind: 'put'; readonly authorization: string; readonly bytes: number }
  | { readonly kind: 'get'; readonly path: string };

const HOST = 'Host: 127.0.0.1\r\n';

export function buildRequests(what: What, count: number): Buffer[] {
  if (what.kind === 'get') {
    const request = Buffer.from(`GET ${what.path} HTTP/1.1\r\n${HOST}\r\n`, 'latin1');
    return Array.from({ length: count }, () => request);
  }
  const run = randomBytes(8).toString('hex');
  return Array.from({ length: count }, (_, index) => {
    const body = bodyOf(what.bytes, run, index);
    return Buffer.from(`${headOf(what, body)}Content-Length: ${body.length}\r\n\r\n${body}`, 'latin1');
  });
}

/** JSON of exactly `bytes` bytes. */
function bodyOf(bytes: number, run: string, index: number): string {
  const head = `{"run":"${run}","delivery":${index},"pad":"`;
  return `${head.padEnd(bytes - 2, 'x')}"}`;
}

function headOf(what: Exclude<What, { kind: 'get' }>, body: string): string {
  if (what.kind === 'put') {
    return `POST /put HTTP/1.1\r\n${HOST}Authorization: ${what.authorization}\r\nContent-Type: application/json\r\n`;
  }
  const secret = what.kind === 'forged' ? `${what.secret}, but another one` : what.secret;
  const signature = createHmac('sha256', secret).update(body).digest('hex');
  return (
    `POST /webhooks/${what.provider} HTTP/1.1\r\n${HOST}User-Agent: GitHub-Hookshot/044aadd\r\nAccept: */*\r\n` +
    'Content-Type: application/json\r\nX-GitHub-Event: push\r\n' +
    `X-GitHub-Delivery: ${randomBytes(16).toString('hex')}\r\nX-Hub-Signature-256: sha256=${signature}\r\n`
  );
}
