(** Appendix C: proofs of Statements/Variance.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Variance.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Law.
Variables (R : realFieldType) (W : finType) (P : law R W).
Implicit Types X Y Z : W -> R.

Lemma eq_mean X Y : X =1 Y -> mean P X = mean P Y.
Proof. by move=> h; apply: eq_bigr => w _; rewrite h. Qed.
Lemma mean_lin a X Y : mean P (fun w => a * X w + Y w) = a * mean P X + mean P Y.
Proof. by rewrite /mean mulr_sumr -big_split; apply: eq_bigr => w _ /=; ring. Qed.
Lemma mean_const a : mean P (fun=> a) = a.
Proof. by rewrite /mean -mulr_suml prob_sum mul1r. Qed.
Lemma meanZ a X : mean P (fun w => a * X w) = a * mean P X.
Proof. by rewrite /mean mulr_sumr; apply: eq_bigr => w _; rewrite mulrCA. Qed.
Lemma mean_ge0 X : (forall w, 0 <= X w) -> 0 <= mean P X.
Proof. by move=> h; apply: sumr_ge0 => w _; rewrite mulr_ge0 ?prob_ge0. Qed.
Lemma mean_sum I (r : seq I) (F : I -> W -> R) : mean P (fun w => \sum_(i <- r) F i w)
  = \sum_(i <- r) mean P (F i).
Proof. by rewrite /mean exchange_big; apply: eq_bigr => w _; rewrite mulr_sumr. Qed.

Lemma eq_cov X X' Y Y' : X =1 X' -> Y =1 Y' -> cov P X Y = cov P X' Y'.
Proof. by move=> h k; apply: eq_mean => w; rewrite h k (eq_mean h) (eq_mean k). Qed.
Lemma covC X Y : cov P X Y = cov P Y X.
Proof. by apply: eq_mean => w; rewrite mulrC. Qed.
Lemma cov_lin a X Y Z : cov P (fun w => a * X w + Y w) Z = a * cov P X Z + cov P Y Z.
Proof. by rewrite /cov -mean_lin; apply: eq_mean => w; rewrite mean_lin; ring. Qed.
Lemma cov_suml I (r : seq I) (a : I -> R) (F : I -> W -> R) Z :
  cov P (fun w => \sum_(i <- r) a i * F i w) Z = \sum_(i <- r) a i * cov P (F i) Z.
Proof.
elim: r => [|i r IH].
  rewrite big_nil -[RHS](mean_const 0); apply: eq_mean => w.
  by rewrite big_nil (eq_mean (Y := fun=> 0)) ?mean_const ?subrr ?mul0r // => w'; rewrite big_nil.
rewrite big_cons -IH -cov_lin; apply: eq_cov => // w; by rewrite big_cons.
Qed.
Lemma covZl a X Y : cov P (fun w => a * X w) Y = a * cov P X Y.
Proof.
have := cov_suml [:: tt] (fun=> a) (fun=> X) Y; rewrite big_seq1 => <-.
by apply: eq_cov => // w; rewrite big_seq1.
Qed.
Lemma var_ge0 X : 0 <= var P X.
Proof. by apply: mean_ge0 => w; rewrite -expr2 sqr_ge0. Qed.
Lemma varZ a X : var P (fun w => a * X w) = a ^+ 2 * var P X.
Proof. by rewrite /var covZl covC covZl mulrA. Qed.
Lemma varN X : var P (fun w => - X w) = var P X.
Proof. by rewrite -[RHS]mul1r -[X in X * _](expr1n _ 2) -sqrrN -varZ; apply: eq_cov => w; rewrite mulN1r. Qed.
Lemma var_add a X Y : var P (fun w => a * X w + Y w) = a ^+ 2 * var P X + var P Y + 2%:R * a * cov P X Y.
Proof.
by rewrite /var cov_lin ![cov P _ (fun w => _ + _)]covC !cov_lin (covC Y X); ring.
Qed.
Lemma var_sum (I : finType) (a : I -> R) (F : I -> W -> R) :
  var P (fun w => \sum_i a i * F i w) = \sum_i \sum_k a i * a k * cov P (F i) (F k).
Proof.
rewrite /var cov_suml; apply: eq_bigr => i _; rewrite covC cov_suml mulr_sumr.
by apply: eq_bigr => k _; rewrite mulrA covC.
Qed.

Lemma cov_sqr X Y : cov P X Y ^+ 2 <= var P X * var P Y.
Proof.
have quad t : 0 <= t ^+ 2 * var P X + var P Y + 2%:R * t * cov P X Y by rewrite -var_add var_ge0.
have [v0|v0] := eqVneq (var P X) 0; last first.
  have v1 : 0 < var P X by rewrite lt_def v0 var_ge0.
  have := quad (- (cov P X Y / var P X)).
  have -> : (- (cov P X Y / var P X)) ^+ 2 * var P X + var P Y + 2%:R * - (cov P X Y / var P X) * cov P X Y
          = (var P X * var P Y - cov P X Y ^+ 2) / var P X by field.
  by rewrite pmulr_lge0 ?invr_gt0 // subr_ge0.
have [->|c0] := eqVneq (cov P X Y) 0; first by rewrite expr0n /= v0 mul0r.
have := quad (- ((var P Y + 1) / (2%:R * cov P X Y))); rewrite v0.
have -> : (- ((var P Y + 1) / (2%:R * cov P X Y))) ^+ 2 * 0 + var P Y
    + 2%:R * - ((var P Y + 1) / (2%:R * cov P X Y)) * cov P X Y = -1 by field.
by rewrite ler0N1.
Qed.
End Law.

Section Spread.
Variables (R : rcfType) (W : finType) (P : law R W).
Implicit Types X Y : W -> R.
Lemma sd_ge0 X : 0 <= sd P X. Proof. exact: sqrtr_ge0. Qed.
Lemma sd_sqr X : sd P X ^+ 2 = var P X. Proof. by rewrite sqr_sqrtr ?var_ge0. Qed.
Lemma cov_sd X Y : `|cov P X Y| <= sd P X * sd P Y.
Proof.
rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?mulr_ge0 ?sd_ge0 // exprMn !sd_sqr real_normK ?num_real //.
exact: cov_sqr.
Qed.
Lemma sdZ a X : sd P (fun w => a * X w) = `|a| * sd P X.
Proof. by rewrite /sd varZ sqrtrM ?sqr_ge0 // sqrtr_sqr. Qed.
End Spread.

Lemma var_plus (R : realFieldType) (W : finType) (P : law R W) X Y :
  var P (fun w => X w + Y w) = var P X + var P Y + 2%:R * cov P X Y.
Proof.
rewrite -[2%:R]mulr1 -[var P X]mul1r -[X in X * var P _](expr1n _ 2) -var_add.
by apply: eq_cov => w; rewrite mul1r.
Qed.

Theorem minkowski : Statements.Variance.minkowski.
Proof.
move=> R W P X Y; rewrite var_plus sqrrB !sd_sqr.
have : - (sd P X * sd P Y) <= cov P X Y by have := cov_sd P X Y; rewrite ler_norml => /andP [].
set c := cov P X Y; set s := _ * _ => h.
have -> : var P X - s *+ 2 + var P Y = var P X + var P Y + 2%:R * - s by ring.
by rewrite ler_add2l ler_pmul2l ?ltr0n.
Qed.

Section Parts.
Variables (R : realFieldType) (W : finType) (P : law R W) (L : nat) (alpha c : 'I_L.+1 -> R)
  (beta : 'I_L.+1 -> W -> R).

Lemma ghost_parts w : ghost alpha beta w = - (gain_sum alpha c * signal beta w + noise alpha c beta w).
Proof.
congr (- _); rewrite /gain_sum mulr_suml -big_split; apply: eq_bigr => l _ /=.
by rewrite /remainder; ring.
Qed.
Lemma var_ghost_parts : var P (ghost alpha beta)
  = var P (fun w => gain_sum alpha c * signal beta w + noise alpha c beta w).
Proof. by rewrite -varN; apply: eq_cov => w; rewrite ghost_parts opprK. Qed.
End Parts.

Theorem variance_of_ghost : Statements.Variance.variance_of_ghost.
Proof. by move=> R W P L alpha c beta; rewrite (var_ghost_parts _ _ c) var_add. Qed.

(* A double sum is its diagonal and twice what is above it. *)
Lemma double_sum (R : ringType) n (a : 'I_n -> 'I_n -> R) (sym : forall l k, a l k = a k l) :
  \sum_l \sum_k a l k = \sum_l a l l + 2%:R * (\sum_(l < n) \sum_(k < n | (l < k)%N) a l k).
Proof.
have split_row (l : 'I_n) : \sum_k a l k
  = a l l + (\sum_(k < n | (l < k)%N) a l k + \sum_(k < n | (k < l)%N) a l k).
  rewrite (bigD1 l) //=; congr (_ + _); rewrite (bigID (fun k : 'I_n => (l < k)%N)) /=; congr (_ + _).
    by apply: eq_bigl => k; rewrite -val_eqE /=; case: ltngtP.
  by apply: eq_bigl => k; rewrite -val_eqE /=; case: ltngtP.
rewrite (eq_bigr _ (fun l _ => split_row l)) big_split big_split /=; congr (_ + _).
rewrite [X in _ + X](exchange_big_dep xpredT) //= mulr2n mulrDl mul1r; congr (_ + _).
by apply: eq_bigr => k _; apply: eq_bigr => l _; rewrite sym.
Qed.

Theorem variance_of_noise : Statements.Variance.variance_of_noise.
Proof.
move=> R W P L alpha c beta; rewrite /noise var_sum double_sum => [|l k]; last first.
  by rewrite covC [alpha l * _]mulrC.
by congr (_ + _); apply: eq_bigr => l _; rewrite expr2.
Qed.

Theorem variance_of_lai : Statements.Variance.variance_of_lai.
Proof. by move=> R W P L alpha beta; rewrite varN varZ. Qed.

Lemma eq_var (R : realFieldType) (W : finType) (P : law R W) X Y : X =1 Y -> var P X = var P Y.
Proof. by move=> h; apply: eq_cov. Qed.

Theorem random_weights : Statements.Variance.random_weights.
Proof.
move=> R W P L alpha beta.
rewrite (@eq_var _ _ _ _ (fun w => \sum_l 1 * (alpha l w * beta l w))) => [|w].
  rewrite (var_sum P (fun=> 1) (fun l w => alpha l w * beta l w)).
  by apply: eq_bigr => l _; apply: eq_bigr => k _; rewrite !mul1r.
by apply: eq_bigr => l _; rewrite mul1r.
Qed.

Theorem unconditional_bound : Statements.Variance.unconditional_bound.
Proof.
by move=> R W P L alpha c beta; rewrite (var_ghost_parts _ _ c) -sdZ; apply: minkowski.
Qed.

Theorem signed_covariance : Statements.Variance.signed_covariance.
Proof.
move=> R W P L alpha c beta; rewrite (variance_of_ghost P alpha c) ler_addl -mulrA.
by rewrite (pmulr_rge0 _ (ltr0Sn R 1)).
Qed.

Theorem correlated_bound : Statements.Variance.correlated_bound.
Proof.
move=> R W P L alpha c beta hcov hgain; rewrite -addrA -variance_of_noise signed_covariance.
exact: mulr_ge0.
Qed.

Theorem noise_only : Statements.Variance.noise_only.
Proof.
move=> R W P L alpha c beta hcov hgain; apply: (@le_trans _ _
  (gain_sum alpha c ^+ 2 * var P (signal beta) + var P (noise alpha c beta))).
  by rewrite ler_addr mulr_ge0 ?sqr_ge0 ?var_ge0.
by rewrite signed_covariance mulr_ge0.
Qed.

Lemma unit_gain_sum (R : ringType) L (alpha c : 'I_L.+1 -> R) : (forall l, c l = 1) -> gain_sum alpha c
  = \sum_l alpha l.
Proof. by move=> h; apply: eq_bigr => l _; rewrite h mulr1. Qed.

Theorem unit_gains : Statements.Variance.unit_gains.
Proof.
move=> R W P L alpha c beta c1; rewrite (variance_of_ghost P alpha c) variance_of_lai unit_gain_sum //.
split=> [|h]; first by ring.
rewrite [X in 0 <= X](_ : _ = var P (noise alpha c beta)
  + 2%:R * ((\sum_l alpha l) * cov P (signal beta) (noise alpha c beta))); last by ring.
by rewrite addr_ge0 ?var_ge0 // mulr_ge0 ?ler0n.
Qed.

Theorem lai_varies_less : Statements.Variance.lai_varies_less.
Proof. by move=> R W P L alpha c beta c1 h; rewrite -subr_ge0; apply: (unit_gains P alpha beta c1).2. Qed.

Theorem lai_varies_more : Statements.Variance.lai_varies_more.
Proof.
move=> R W P L alpha beta a0 hsd; rewrite variance_of_lai varN var_sum expr2 mulr_suml mulr_suml.
apply: ler_sum => l _; rewrite mulr_sumr mulr_suml; apply: ler_sum => k _.
apply: ler_wpmul2l; first exact: mulr_ge0.
apply: le_trans (ler_norm _) _; apply: le_trans (cov_sd _ _ _) _; rewrite -sd_sqr expr2.
by apply: ler_pmul; rewrite ?sd_ge0.
Qed.

Theorem criterion : Statements.Variance.criterion.
Proof.
move=> R W P L alpha c beta h0; rewrite (variance_of_ghost P alpha c) variance_of_lai h0 mulr0 addr0.
by rewrite mulrBl ler_subl_addl.
Qed.

(* What a conditional mean says of products with functions of the condition. *)
Lemma mean_given (R : realFieldType) (W : finType) (P : law R W) (S : eqType) (T : W -> S) X Y (h : S -> R) :
  same_mean_given P T X Y -> mean P (fun w => h (T w) * X w) = mean P (fun w => h (T w) * Y w).
Proof.
move=> same; rewrite /mean.
have part Z : \sum_w prob P w * (h (T w) * Z w) = \sum_(t <- undup (codom T)) h t * \sum_(w
  | T w == t) prob P w * Z w.
  rewrite (eq_bigr (fun w => \sum_(t <- undup (codom T)) (T w == t)%:R * (h t * (prob P w * Z w)))) => [|w _].
    rewrite exchange_big; apply: eq_bigr => t _; rewrite mulr_sumr [RHS]big_mkcond; apply: eq_bigr => w _.
    by case: eqP => _; rewrite ?mul1r ?mul0r.
  rewrite (bigD1_seq (T w)) ?undup_uniq ?mem_undup ?codom_f //= eqxx mul1r big1 ?addr0 => [|t /negPf nt].
    by rewrite mulrCA.
  by rewrite eq_sym nt mul0r.
by rewrite !part; apply: eq_bigr => t _; rewrite same.
Qed.

Section Conditional.
Variables (R : realFieldType) (W : finType) (P : law R W) (S : eqType) (T : W -> S) (L : nat).
Variables (alpha c : 'I_L.+1 -> R) (beta : 'I_L.+1 -> W -> R) (value : S -> R).
Hypothesis known : forall w, signal beta w = value (T w).
Hypothesis given : forall l, same_mean_given P T (beta l) (fun w => c l * signal beta w).

Lemma noise_given : same_mean_given P T (noise alpha c beta) (fun=> 0).
Proof.
move=> t; rewrite [RHS]big1 => [|w _]; last by rewrite mulr0.
rewrite (eq_bigr (fun w => \sum_l alpha l * (prob P w * beta l w - prob P w * (c l * signal beta w)))) =>
  [|w _].
  by rewrite exchange_big big1 // => l _; rewrite -mulr_sumr sumrB given subrr mulr0.
by rewrite mulr_sumr; apply: eq_bigr => l _; rewrite /remainder; ring.
Qed.
Lemma mean_noise : mean P (noise alpha c beta) = 0.
Proof.
have := mean_given (fun=> 1) noise_given; rewrite (eq_mean _ (Y := noise alpha c beta)) => [->|w].
  by rewrite (eq_mean _ (Y := fun=> 0)) ?mean_const // => w; rewrite mulr0.
by rewrite mul1r.
Qed.
Lemma cov_noise : cov P (signal beta) (noise alpha c beta) = 0.
Proof.
have -> : cov P (signal beta) (noise alpha c beta)
        = mean P (fun w => (fun s => value s - mean P (signal beta)) (T w) * noise alpha c beta w).
  by apply: eq_mean => w /=; rewrite known mean_noise subr0.
rewrite (mean_given (fun s => value s - mean P (signal beta)) noise_given).
by rewrite (eq_mean _ (Y := fun=> 0)) ?mean_const // => w; rewrite mulr0.
Qed.
Lemma mean_ghost : mean P (ghost alpha beta) = - (gain_sum alpha c * mean P (signal beta)).
Proof.
rewrite (eq_mean _ (Y := fun w => -1 * (gain_sum alpha c * signal beta w + noise alpha c beta w))) => [|w].
  by rewrite meanZ mean_lin mean_noise addr0 mulN1r.
by rewrite (ghost_parts _ c) mulN1r.
Qed.
Lemma mean_lai : mean P (lai alpha beta) = - ((\sum_l alpha l) * mean P (signal beta)).
Proof. by rewrite -mulNr -meanZ; apply: eq_mean => w; rewrite mulNr. Qed.
End Conditional.

Theorem scale_free : Statements.Variance.scale_free.
Proof.
move=> R W P S T L alpha c beta value known given;
  rewrite (mean_ghost _ given) mean_lai !oppr_eq0 !mulf_eq0 !negb_or.
move=> [/andP [g0 m0] /andP [a0 _]]; rewrite !normrN !normrM.
rewrite (_ : sd P (lai _ _) = `|\sum_l alpha l| * sd P (signal beta)); last first.
  by rewrite -sdZ; congr Num.sqrt; rewrite varN.
rewrite -mulf_div divff ?normr_eq0 // mul1r invfM mulrA ler_pmul2r ?invr_gt0 ?normr_gt0 //.
rewrite ler_pdivl_mulr ?normr_gt0 // mulrC -sdZ /sd ler_wsqrtr // (variance_of_ghost P alpha c).
by rewrite (cov_noise _ known given) mulr0 addr0 varZ ler_addl var_ge0.
Qed.
