(** Proofs of Statements/Certificates.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Products Certificates.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A gradient i layers below layer k. *)
Lemma reached_le (R : rcfType) d L k (J : forall l, 'M[R]_(d l, d l.+1)) (x : trace R d) f : (k <= L)%N ->
  chain L J x -> (forall l, (0 < l < k)%N -> gain_le (J l) (f l)) ->
  forall l, (0 < l <= k)%N -> norm (grad x l) <= (\prod_(l <= t < k) f t) * norm (grad x k).
Proof.
move=> kL hx hf l /andP [l0 lk]; rewrite -(subKn lk); set i := (k - l)%N.
have : (i < k)%N by rewrite /i ltn_subrL l0 (leq_trans l0 lk).
elim: i => [|i IH] ik; first by rewrite subn0 big_geq ?mul1r.
have := IH (ltnW ik); set s := (k - i.+1)%N.
have -> : (k - i)%N = s.+1 by rewrite /s subnSK // ltnW.
have s0 : (0 < s)%N by rewrite subn_gt0.
have sk : (s < k)%N by rewrite ltn_subrL (leq_trans _ ik).
have [f0 /(_ (grad x s.+1)) step] : gain_le (J s) (f s) by apply: hf; rewrite s0.
move=> up; rewrite (hx s); last by rewrite s0 (leq_trans sk kL).
by apply: le_trans step _; rewrite (big_ltn sk) -mulrA ler_wpmul2l.
Qed.

Theorem certificate : Statements.Certificates.certificate.
Proof.
move=> R d n L k V j Jz Jj fz fj /andP [k0 kL] [hz hj] hf.
have k1 : (k <= L.+1)%N := leqW kL.
have -> : ghost L V j - \sum_z \sum_(k <= l < L.+1) alpha (V z) j l * beta (V z) j l
        = \sum_z \sum_(1 <= l < k) alpha (V z) j l * beta (V z) j l.
  rewrite -sumrB; apply: eq_bigr => z _.
  by rewrite (big_cat_nat _ (n := k)) //= addrK.
apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => z _.
apply: le_trans (ler_norm_sum _ _ _) _; rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l /andP [l0 lk].
rewrite normrM -mulrA ler_wpmul2l ?normr_ge0 //; apply: le_trans (cauchy_schwarz _ _) _.
rewrite big_split /= mulrACA; apply: ler_pmul; rewrite ?norm_ge0 //.
  by apply: reached_le (hz z) _ _ _ => //; [move=> t ht; apply: (hf t ht).1 | rewrite l0 ltnW].
by apply: reached_le hj _ _ _ => //; [move=> t ht; apply: (hf t ht).2 | rewrite l0 ltnW].
Qed.
