/** An entry of the audit log: one line of JSON, without bodies and secrets. */
import type { DeliveryDto } from '@ron/proto';

export type AuditEvent =
  | ({ readonly kind: 'delivery'; readonly ip?: string } & DeliveryDto)
  | {
      readonly kind: 'admin';
      readonly at_ms: number;
      readonly action: string;
      /** Such as the reason that an operator gave. */
      readonly detail?: string;
      readonly provider?: string;
      readonly subject: string;
      readonly capability_id: string;
      readonly corr_id: string;
    };
