/** A client that adds all its calls to a history. */
import type {
  NackRequest,
  OutgoingMessage,
  ReceivedMessage,
  ReceiveRequest,
  SendResult,
  TokenResult,
} from '@ron/proto';
import { addressOf } from '@ron/testkit/service';
import { Recorder, type HistoryCall, type SendCall, type SettleCall, type Times } from './history.ts';
import { Refusal, type Wire } from './wires.ts';

const VISIBILITY_MS_DEFAULT = 30_000;

export class RecordingClient {
  readonly #recorder: Recorder;
  readonly #wire: Wire;

  constructor(recorder: Recorder, wire: Wire) {
    this.#recorder = recorder;
    this.#wire = wire;
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    let isRefused = false;
    const run = async (): Promise<readonly SendResult[]> => {
      try {
        return await this.#wire.send(messages);
      } catch (error) {
        isRefused = error instanceof Refusal && error.isSure;
        throw error;
      }
    };
    return await this.#recorder.around(run, (answer, times) =>
      messages.map((message, at): SendCall => {
        const { topic, key, idempotency_key, delay_ms, payload } = message;
        const call = {
          kind: 'send',
          topic,
          key,
          idempotency_key,
          delay_ms,
          body: addressOf(payload),
          ...times,
        } as const;
        if (answer === undefined) return { ...call, result: isRefused ? 'refused' : undefined };
        return { ...call, result: resultOf(answer[at]!) };
      }),
    );
  }

  async receive(topic: string, request: ReceiveRequest): Promise<readonly ReceivedMessage[]> {
    const { visibility_ms = VISIBILITY_MS_DEFAULT } = request;
    return await this.#recorder.around(
      () => this.#wire.receive(topic, request),
      (messages, times) => [
        {
          kind: 'receive',
          topic,
          visibility_ms,
          ...times,
          result: messages?.map(({ seq, id, delivery, attempts, key, payload, b3, replay_of }) => {
            return { seq, id, delivery, attempts, key, body: addressOf(payload), stated: b3, replay_of };
          }),
        },
      ],
    );
  }

  async ack(topic: string, messages: readonly ReceivedMessage[]): Promise<readonly TokenResult[]> {
    const run = (): Promise<readonly TokenResult[]> => this.#wire.ack(topic, tokensOf(messages));
    return await this.#recorder.around(run, settled('ack', topic, messages, {}));
  }

  async nack(
    topic: string,
    messages: readonly ReceivedMessage[],
    how: NackRequest = {},
  ): Promise<readonly TokenResult[]> {
    const run = (): Promise<readonly TokenResult[]> => this.#wire.nack(topic, tokensOf(messages), how);
    const { delay_ms, dead } = how;
    return await this.#recorder.around(run, settled('nack', topic, messages, { delay_ms, dead }));
  }

  async extend(
    topic: string,
    messages: readonly ReceivedMessage[],
    visibility_ms: number,
  ): Promise<readonly TokenResult[]> {
    const run = (): Promise<readonly TokenResult[]> => this.#wire.extend(topic, tokensOf(messages), visibility_ms);
    return await this.#recorder.around(run, settled('extend', topic, messages, { visibility_ms }));
  }
}

const tokensOf = (messages: readonly ReceivedMessage[]): string[] => messages.map(({ token }) => token);

function settled(
  kind: SettleCall['kind'],
  topic: string,
  messages: readonly ReceivedMessage[],
  how: Pick<SettleCall, 'delay_ms' | 'dead' | 'visibility_ms'>,
): (answer: readonly TokenResult[] | undefined, times: Times) => HistoryCall[] {
  return (answer, times) =>
    messages.map(({ seq, delivery }, at) => ({ kind, topic, seq, delivery, ...how, ...times, result: answer?.[at] }));
}

function resultOf(result: SendResult): SendCall['result'] {
  if (!('error' in result)) return result;
  return result.error === 'conflict' ? { conflict: result.id } : 'refused';
}
