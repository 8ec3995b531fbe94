/**
 * The services that commands about names call.
 *
 * Contract: `--url`, `--pin` and RON_URL name the service that the command is about; the other services are those of the
 * directory. Each call resolves its service, so that an error names the service that caused it.
 */
import { IndexClient, type KmsClient, type StorageClient } from '@ron/client';
import { homeOf, shownPath } from '../home.ts';
import type { Io } from '../io.ts';
import { withKms } from '../kms.ts';
import type { ConnectionValues, ResolvedService } from '../resolve-service.ts';
import { withClient } from '../service-client.ts';
import { withStorage } from '../storage.ts';

export interface NodeServices {
  /** The directory of kms, for a person. */
  readonly kms_dir: string;
  readonly index: <T>(work: (client: IndexClient) => Promise<T>) => Promise<T>;
  readonly kms: <T>(work: (client: KmsClient) => Promise<T>) => Promise<T>;
  readonly storage: <T>(work: (client: StorageClient, resolved: ResolvedService) => Promise<T>) => Promise<T>;
}

export interface ServicesInit {
  readonly values: ConnectionValues;
  readonly io: Io;
  readonly signal: AbortSignal;
}

/** `about` is the service that `--url` names. */
export function servicesOf({ values, io, signal }: ServicesInit, about: 'index' | 'storage'): NodeServices {
  const { RON_URL: _, ...env } = io.env;
  const own: ConnectionValues = { dir: values.dir, 'capability-file': values['capability-file'] };
  const [indexValues, indexIo] = about === 'index' ? [values, io] : [own, { env }];
  const [storageValues, storageIo] = about === 'storage' ? [values, io] : [own, { env }];
  return {
    kms_dir: shownPath(homeOf(own, { env }).of('kms').dir),
    index: (work) => withClient('index', (init) => new IndexClient(init), indexValues, indexIo, signal, work),
    kms: (work) => withKms(own, { env }, signal, work),
    storage: (work) => withStorage(storageValues, storageIo, signal, work),
  };
}
