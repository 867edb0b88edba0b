(** Appendix A: proofs of Statements/Products.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Products.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Operators.
Variables (R : ringType) (d : nat -> nat).
Implicit Types J B D : forall k, 'M[R]_(d k.+1, d k).

Lemma between_self J k : between J k k = 1%:M.
Proof. by rewrite /between subnn conform_mx_id. Qed.
Lemma between_step J k t : (t <= k)%N -> between J k.+1 t = J k *m between J k t.
Proof.
have between_add m : between J (m + t)%N t = product J t m by rewrite /between addnK conform_mx_id.
move=> /subnK <-; move: (k - t)%N => m; rewrite between_add; exact: (between_add m.+1).
Qed.
Lemma operator0 J : operator J 0 = 1%:M. Proof. exact: between_self. Qed.
Lemma operatorS J k : operator J k.+1 = J k *m operator J k. Proof. exact: between_step. Qed.
End Operators.

Theorem backward_product : Statements.Products.backward_product.
Proof.
move=> R d J g chain; elim=> [|k IH]; first by rewrite operator0 mul1mx.
by rewrite operatorS -mulmxA -IH chain.
Qed.

Theorem telescoping : Statements.Products.telescoping.
Proof.
move=> R d B D; elim=> [|k IH]; first by rewrite !operator0 subrr big_ord0.
rewrite big_ord_recr /= between_self mul1mx !operatorS {1}/plus mulmxDl.
rewrite addrAC -mulmxBr IH mulmx_sumr; congr (_ + _).
by apply: eq_bigr => t _; rewrite between_step // !mulmxA.
Qed.

Theorem signal_and_noise : Statements.Products.signal_and_noise.
Proof.
move=> R d B J k g xi dA ->; rewrite !mulmxBl mulmxDr.
by rewrite -[RHS]addrA [X in _ = _ + X]addrACA -opprD [RHS]addrC subrK.
Qed.

Theorem bilinear_form : Statements.Products.bilinear_form.
Proof. by move=> R m n Az Aj gz gj lastz lastj [-> ->]; rewrite dot_mull mulmxA. Qed.

Theorem gain_and_remainder : Statements.Products.gain_and_remainder.
Proof.
move=> R m n A dAz dAj c gz gj; rewrite dot_mull mulmxA -dotZr -dotDr -mul_scalar_mx -mulmxDl.
congr (dot _ (_ *m _)); rewrite [(A + dAz)^T]raddfD /= mulmxDl !mulmxDr /remainder_matrix.
by rewrite !addrA [c%:M + _]addrC addrK.
Qed.

Theorem last_layer : Statements.Products.last_layer.
Proof.
move=> R d J gz gj; rewrite operator0; split; rewrite ?mul1mx //.
  by move=> d0; rewrite trmx1 mul1mx mxtrace1 divff // pnatr_eq0 -lt0n.
by rewrite /remainder_matrix trmx1 !mul1mx trmx0 !mul0mx subrr !addr0.
Qed.

Lemma gain_product (R : rcfType) d (B : forall k, 'M[R]_(d k.+1, d k)) rho :
  (forall t, gain_le (B t) (rho t)) -> forall k, gain_le (operator B k) (\prod_(t < k) rho t).
Proof.
move=> hB; elim=> [|k [IH0 IH]]; first by rewrite operator0 big_ord0; split=> [|v];
  rewrite ?ler01 // mul1mx mul1r.
rewrite operatorS big_ord_recr /=; have [r0 hr] := hB k; split=> [|v]; first exact: mulr_ge0.
rewrite -mulmxA [_ * rho k]mulrC -mulrA; apply: le_trans (hr _) _; exact: ler_wpmul2l.
Qed.

Theorem perturbation_norm : Statements.Products.perturbation_norm.
Proof.
move=> R d B D rho delta k hB hD.
have hJ t : gain_le (plus B D t) (rho t + delta t).
  have [b0 hb] := hB t; have [d0 hd] := hD t; split=> [|v]; first exact: addr_ge0.
  by rewrite mulmxDl mulrDl; apply: le_trans (norm_triangle _ _) _; apply: ler_add.
elim: k => [|k [IH0 IH]].
  by rewrite !operator0 !big_ord0 !subrr; split=> // v; rewrite mul0mx norm0 mul0r.
have [b0 hb] := hB k; have [d0 hd] := hD k; have [p0 hp] := gain_product hJ k.
set P := \prod_(t < k) (rho t + delta t) in IH0 IH p0 hp *; set Q := \prod_(t < k) rho t in IH0 IH *.
rewrite !big_ord_recr /= -/P -/Q.
have -> : P * (rho k + delta k) - Q * rho k = rho k * (P - Q) + delta k * P by ring.
split=> [|v]; first by rewrite addr_ge0 // mulr_ge0.
have -> : (operator (plus B D) k.+1 - operator B k.+1) *m v
        = B k *m ((operator (plus B D) k - operator B k) *m v) + D k *m (operator (plus B D) k *m v).
  rewrite !operatorS (_ : plus B D k = B k + D k) // !mulmxDl !mulNmx mulmxDr mulmxN !mulmxA.
  by rewrite addrAC.
apply: le_trans (norm_triangle _ _) _; rewrite mulrDl; apply: ler_add; rewrite -mulrA.
  by apply: le_trans (hb _) _; apply: ler_wpmul2l.
by apply: le_trans (hd _) _; apply: ler_wpmul2l.
Qed.

Theorem trace_gain : Statements.Products.trace_gain.
Proof.
move=> R n M c; set g := \tr M / n.+1%:R.
have tr0 : \tr (M - g%:M) = 0.
  by rewrite raddfB /= mxtrace_scalar -mulr_natr divfK ?subrr // pnatr_eq0.
split=> //; rewrite norm_le ?norm_ge0 // norm_sqr.
have -> : M - c%:M = (M - g%:M) + (g - c)%:M by rewrite raddfB /= addrA subrK.
have orth : dot (M - g%:M) (g - c)%:M = 0.
  by rewrite -[(g - c)%:M]scalemx1 dotZr dotC dotE trmx1 mul1mx tr0 mulr0.
move: (M - g%:M) orth => A orth; rewrite dotDl !dotDr (dotC _ A) orth addr0 add0r ler_addl; exact: dot_ge0.
Qed.
