/**
 * Sends the AWS client's requests through `Egress` instead of the client's own HTTP stack.
 *
 * Contract: as `Egress`. A request other than `CreateKey` may be sent twice if a pooled connection turns out to be closed.
 * Bound: `call_ms_max` per call, `ANSWER_BYTES_MAX` per response. Cancellation: the `abortSignal`.
 *
 *   const client = new KMSClient({ region, requestHandler: new EgressHandler({ endpoint, call_ms_max: 5000 }) });
 */
import { Egress, rulesFor, type EgressInit } from '@ron/egress';
import { Deadline, RonError } from '@ron/kernel';

const ANSWER_BYTES_MAX = 256 * 1024;
/** `Egress` sets these itself, to the same values. */
const OF_THE_CONNECTION = new Set(['host', 'content-length']);

export interface EgressHandlerInit {
  /** Default: HTTPS on port 443 of any host. */
  readonly endpoint: string | undefined;
  readonly call_ms_max: number;
  readonly egress: Pick<EgressInit, 'networks' | 'ca'>;
}

/** The members of the client's request that are used here. */
interface AwsRequest {
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number | undefined;
  readonly path: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly query?: object;
  readonly body?: unknown;
}

interface AwsAnswer {
  readonly response: { statusCode: number; headers: Record<string, string>; body: Uint8Array };
}

export class EgressHandler {
  readonly metadata = { handlerProtocol: 'http/1.1' };
  readonly #egress: Egress;
  readonly #call_ms_max: number;

  /** Throws `validation` for an endpoint that is not an HTTP URL. */
  constructor({ endpoint, call_ms_max, egress }: EgressHandlerInit) {
    this.#call_ms_max = call_ms_max;
    this.#egress = new Egress({
      name: 'cloud',
      ...(endpoint === undefined ? {} : rulesFor(endpoint)),
      ...egress,
      limits: { first_byte_ms: call_ms_max, total_ms: call_ms_max, body_bytes_max: ANSWER_BYTES_MAX },
      // The backend's `Availability` is the circuit breaker.
      breaker: 'none',
    });
  }

  async handle(request: AwsRequest, options: { abortSignal?: unknown } = {}): Promise<AwsAnswer> {
    const { method, body } = request;
    if (method !== 'POST' || Object.keys(request.query ?? {}).length > 0 || !isBytes(body))
      throw new RonError('internal', 'the AWS client sent a request with an unsupported body');
    const port = request.port === undefined ? '' : `:${request.port}`;
    const url = `${request.protocol}//${request.hostname}${port}${request.path}`;
    const named = Object.entries(request.headers).map(([name, value]) => [name.toLowerCase(), value] as const);
    const headers: Record<string, string> = Object.fromEntries(named.filter(([name]) => !OF_THE_CONNECTION.has(name)));
    const idempotent = headers['x-amz-target']?.endsWith('.CreateKey') === false;
    const { abortSignal } = options;
    using deadline = Deadline.after(
      'cloud',
      this.#call_ms_max,
      abortSignal instanceof AbortSignal ? { signal: abortSignal } : {},
    );
    const answer = await this.#egress.whole(
      { url, method, headers, body: typeof body === 'string' ? Buffer.from(body) : body, idempotent },
      { deadline },
    );
    const received = Object.entries(answer.headers).map(([name, values]) => [name, (values ?? []).join(', ')] as const);
    return {
      response: { statusCode: answer.status, headers: Object.fromEntries(received), body: answer.body },
    };
  }

  close(): Promise<void> {
    return this.#egress.close();
  }

  /** Required by the client's interface; nothing is configurable. */
  updateHttpClientConfig(): void {}

  httpHandlerConfigs(): Record<string, never> {
    return {};
  }
}

const isBytes = (body: unknown): body is string | Uint8Array => typeof body === 'string' || body instanceof Uint8Array;
