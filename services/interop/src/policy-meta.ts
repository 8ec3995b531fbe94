/**
 * The state of the cell `policy_meta`: descriptors of providers and the brownout mode. [interop I-1] [interop I-2] Requests read
 * snapshots that are built from it: `ProviderTable` has that of the providers, `ManualMode` that of the brownout mode.
 * Bound: one descriptor for each provider, and one mode.
 */
import type { Descriptor } from '@ron/proto';
import { AUTO, type ManualState } from './upstreams/manual-mode.ts';

export interface PolicyMeta extends ManualState {
  /** By the name of the provider. */
  readonly descriptors: Map<string, Descriptor>;
}

export const newPolicyMeta = (): PolicyMeta => ({ descriptors: new Map(), brownout: AUTO });
