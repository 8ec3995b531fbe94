/**
 * A row of the service table: how a service is started, and which services it calls.
 *
 * Contract: everything that `ron up`, `ron config` and `ron doctor` know about a service follows from its row: the files
 * that it is given, the order of start and drain, its checks. A new service is a new row.
 */
import type { ConfigSchema, KeyTable } from '@ron/config';
import type { Scope, Service } from '@ron/proto';
import type { Home } from '../../home.ts';

/** The directory, ports and services of a node. The defaults of its services follow from it. */
export interface Place {
  readonly home: Home;
  /** 0 lets each service choose a free port. */
  readonly base_port: number;
  readonly amnesia: boolean;
  /** The operator accepts that known volumes are missing. */
  readonly degraded?: boolean;
  /** The services that run on the node. */
  readonly services: readonly Service[];
  /** The service that derives the keys of capabilities; without one, each service has a key file. */
  readonly key_service: Service | undefined;
}

/**
 * A service that another one calls.
 *
 *     { to: 'mailbox', scopes: ['mailbox:send'], caveats: ['name ^= hooks.'],
 *       config: { url: 'mailbox.url', capability_file: 'mailbox.capability_file' } }
 *
 * The caller gets the socket of the callee as `unix:run/<callee>.sock`, and reads its own capability from
 * `<caller>/<callee>.cap`.
 */
export interface Call {
  readonly to: Service;
  /** Scopes of the caller's capability. If empty, the caller uses open routes only and gets no capability. */
  readonly scopes: readonly Scope[];
  /** Further caveats of that capability. */
  readonly caveats?: readonly string[];
  /**
   * Required if a caller has several capabilities for one callee: the file is then `<callee>-<purpose>.cap`. Routes that
   * state no label refuse a capability with a `label` caveat, so such a call needs its own entry.
   */
  readonly purpose?: string;
  /** The configuration keys of the caller that name the socket and the file. */
  readonly config?: { readonly url?: string; readonly capability_file?: string };
  /** The caller cannot start without the callee. Default false. */
  readonly isRequired?: boolean;
  /** The caller works without the callee, so this call does not order the drain. Default false. */
  readonly isBackground?: boolean;
}

/**
 * `key` names the file itself, or, with `name`, a directory above it. A star in `name` stands for the names of all such files,
 * and for the same text in `purpose`.
 */
export interface SealedFileOf {
  readonly key: string;
  readonly name?: string;
  readonly purpose: string;
}

/** Stands in a flag for the port of a service, if that is chosen at the start. */
export const portOf = (service: Service): string => `{${service}.port}`;

export type Defaults = (place: Place) => Readonly<Record<string, string>>;

export interface ServiceEntry {
  readonly name: Service;
  /** Its process entry. */
  readonly main: string;
  /** Modules that it runs in threads, which its process entry does not import. Default none. */
  readonly threads?: readonly string[];
  readonly calls: readonly Call[];
  /** It derives the keys of capabilities; its owner's capability is used to mint all others. Default false. */
  readonly derives_keys?: boolean;
  /** It knows which capabilities are revoked. Default false. */
  readonly knows_revocations?: boolean;
  /** It needs the secrets in the environment of `ron up`: `RON_KEK`, `RON_PIN`, those of the cloud. Default false. */
  readonly holds_secrets?: boolean;
  /** Its defaults may change while the node runs: a reload restarts it then. Default false. */
  readonly restarts_on_reload?: boolean;
  /** The others run without it: if it fails to start, it is restarted until it succeeds. Default false. */
  readonly is_optional?: boolean;
  /** Its sealed files, each in a directory that a configuration key names. */
  readonly sealed_files?: readonly SealedFileOf[];
  /** Configuration that follows from `Place`. The operator's values take precedence. */
  readonly defaults: Defaults;
  readonly schema: () => Promise<ConfigSchema<KeyTable>>;
}
