/** A result of one check of `ron doctor`. */
export interface Finding {
  readonly level: 'ok' | 'warn' | 'fail';
  readonly what: string;
  /** The action that resolves it. */
  readonly fix?: string;
}
